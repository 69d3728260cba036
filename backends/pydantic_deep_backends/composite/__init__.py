"""`CompositeBackend`: several backends as one, each mounted at a path.

`_backend` has the operations, `_mounts` maps a path to its backend, and `_search`, `_snapshots`, `_tracking` and
`_identity` combine the results of the mounted backends.

Not here: copy-on-write views (`overlay`), and rules for individual backends.
"""

from __future__ import annotations

from ._backend import CompositeBackend

__all__ = ('CompositeBackend',)
