"""`StateBackend`: files in memory, with snapshots at no cost.

`_backend` has the operations, `_tracker` reports the changes between two captures.

Not here: the tree that stores the files and their contents (`trees`).
"""

from __future__ import annotations

from ._backend import StateBackend

__all__ = ('StateBackend',)
