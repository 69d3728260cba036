"""`OverlayBackend`: a copy-on-write view of another backend, for changes that are merged into it later or discarded.

`_backend` has the operations, `_layer` stores the changed paths, `_search` searches, `_merge` merges the changes into
the base, and `_dump` converts an overlay to JSON.

Not here: the merge of trees and texts (`trees`).
"""

from __future__ import annotations

from ._backend import OverlayBackend
from ._dump import relocate
from ._merge import OverlayMerge

__all__ = ('OverlayBackend', 'OverlayMerge', 'relocate')
