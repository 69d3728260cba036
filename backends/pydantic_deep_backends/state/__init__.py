"""`StateBackend`: files in memory, with snapshots that cost nothing.

`_backend` has the operations, `_tracker` reports what changed between two captures.

Not here: the tree that holds the files and their contents (`trees`).
"""

from __future__ import annotations

from ._backend import StateBackend

__all__ = ('StateBackend',)
