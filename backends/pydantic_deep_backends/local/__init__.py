"""`LocalBackend`: the files of one directory, which it cannot leave.

`_backend` has the operations; `_capture`, `_index` and `_tracker` make trees of the files, `_patch` restores them,
`_protected_scan` finds protected files, and `_identity` recognizes the directory.

Not here: access by descriptors (`files`), commands (`commands`), isolation (`sandbox`).
"""

from __future__ import annotations

from ._backend import LocalBackend

__all__ = ('LocalBackend',)
