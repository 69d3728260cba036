"""Trees of files: immutable and content-addressed; diffs and merges touch no file.

`Tree` maps paths to `FileVersion`, `Tree.diff` compares two trees, and `merge_trees` merges two that diverged. All of
it is pure: the caller passes contents as bytes, by digest. `SupportsSnapshots` in `protocol` marks the backends that
can be captured as a tree and restored.
"""

from __future__ import annotations

from .trees._encoding import node_references
from .trees._merge import Conflict, ConflictKind, MergeResult, merge_trees, needed_for_merge
from .trees._nodes import FileVersion, digest_of
from .trees._tree import Tree, TreeDiff

__all__ = (
    'Conflict',
    'ConflictKind',
    'FileVersion',
    'MergeResult',
    'Tree',
    'TreeDiff',
    'digest_of',
    'merge_trees',
    'needed_for_merge',
    'node_references',
)
