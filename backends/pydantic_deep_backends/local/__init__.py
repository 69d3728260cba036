"""`LocalBackend`: the files of one directory, confined to it.

`_files` has the operations of single files and searches, and `_backend` those of the whole directory. `_capture`,
`_index` and `_tracker` build trees of the files, `_patch` restores them, `_protected_scan` finds protected files, and
`_identity` identifies the directory.

Not here: file access by descriptor (`files`), commands (`commands`), isolation (`sandbox`).
"""

from __future__ import annotations

from ._backend import LocalBackend

__all__ = ('LocalBackend',)
