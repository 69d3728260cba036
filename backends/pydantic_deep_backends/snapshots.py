"""Trees of files: immutable, content-addressed, comparable and mergeable without touching a file.

`Tree` maps paths to `FileVersion`; `Tree.diff` says how two differ; `merge_trees` joins two that grew apart. All of
it is pure: contents are bytes that the caller passes in by digest. Which backends can be captured as a tree and put
back is `SupportsSnapshots` in `protocol`.
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
