"""Three-way merge of trees: a change on one side is taken, changes on both are merged line by line or conflict.

Nothing is guessed: a change that cannot be merged without a decision is a `Conflict`, and the merged tree has our
version. `_text_merge` merges two texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pydantic_deep_backends.errors import MissingBlobError

from ._nodes import FileVersion, digest_of
from ._text_merge import merge_lines
from ._tree import Tree

ConflictKind: TypeAlias = Literal['content', 'binary', 'add/add', 'delete/modify', 'modify/delete', 'file/directory']
"""The kind of the changes on both sides, ours first.

`content`: both changed the same or neighbouring lines. `binary`: both changed a file that is not text (it contains a
NUL byte). `add/add`: both added the file, differently. `delete/modify` and `modify/delete`: one side removed the file,
the other changed it. `file/directory`: the path is a file on one side and a directory on the other.
"""


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """A file that cannot be merged; the merged tree has our version."""

    path: str
    """The file. For `file/directory`, the path that is a file on one side and a directory on the other."""
    kind: ConflictKind
    """The reason for the conflict."""
    base: FileVersion | None
    """The common ancestor; `None` if there was no file."""
    ours: FileVersion | None
    """Our version; `None` if we have no file there."""
    theirs: FileVersion | None
    """Their version; `None` if they have no file there."""


@dataclass(frozen=True, kw_only=True)
class MergeResult:
    """A merged tree, and the conflicts for a person to decide."""

    tree: Tree
    """The merged files, with our version of conflicting files."""
    conflicts: tuple[Conflict, ...]
    """Conflicts sorted by path, at most one per path."""
    blobs: Mapping[str, bytes]
    """New contents that the merge produced, by digest. The tree references them, and the caller must store them."""


def needed_for_merge(base: Tree, ours: Tree, theirs: Tree) -> frozenset[str]:
    """Return the digests of the contents that `merge_trees` needs: of files with three different contents."""
    candidates = _changed_on_both_sides(base, ours, theirs)
    trios = (_versions(path, base, ours, theirs) for path in candidates)
    return frozenset(v.digest for trio in trios if _is_line_merge(*trio) for v in trio if v is not None)


def merge_trees(base: Tree, ours: Tree, theirs: Tree, contents: Mapping[str, bytes]) -> MergeResult:
    """Merge the changes from `base` to `ours` and from `base` to `theirs`.

    Args:
        base: The common ancestor.
        ours: One side; conflicting files keep its version.
        theirs: The other side.
        contents: Bytes by digest, at least for `needed_for_merge(base, ours, theirs)`.

    Raises:
        MissingBlobError: `contents` lacks needed contents.
    """
    merge = _Merge(base, ours, theirs, contents)
    return merge.result()


class _Merge:
    def __init__(self, base: Tree, ours: Tree, theirs: Tree, contents: Mapping[str, bytes]) -> None:
        self._base = base
        self._ours = ours
        self._theirs = theirs
        self._contents = contents
        self._tree = ours
        self._conflicts: dict[str, Conflict] = {}
        self._blobs: dict[str, bytes] = {}

    def result(self) -> MergeResult:
        self._check_contents()
        theirs = self._base.diff(self._theirs)
        # Removals first, so that a directory can replace a file of the same name.
        for path in (*theirs.removed, *theirs.changed, *theirs.added):
            self._merge_path(path)
        conflicts = tuple(self._conflicts[path] for path in sorted(self._conflicts))
        return MergeResult(tree=self._tree, conflicts=conflicts, blobs=self._blobs)

    def _check_contents(self) -> None:
        needed = needed_for_merge(self._base, self._ours, self._theirs) - self._contents.keys()
        if needed:
            both = _changed_on_both_sides(self._base, self._ours, self._theirs)
            trios = {path: _versions(path, self._base, self._ours, self._theirs) for path in both}
            lacking = {p for p, trio in trios.items() if any(v is not None and v.digest in needed for v in trio)}
            raise MissingBlobError(tuple(sorted(lacking)))

    def _merge_path(self, path: str) -> None:
        base, ours, theirs = _versions(path, self._base, self._ours, self._theirs)
        if theirs == ours:
            return
        if ours == base:
            self._take_theirs(path, theirs)
        elif base is None:
            self._report(path, 'add/add')
        elif theirs is None:
            self._report(path, 'modify/delete')
        elif ours is None:
            self._report(path, 'delete/modify')
        else:
            self._merge_file(path, base, ours, theirs)

    def _take_theirs(self, path: str, theirs: FileVersion | None) -> None:
        if theirs is None:
            self._tree = self._tree.remove(path)
        elif self._tree.is_dir(path) or self._tree.file_above(path) is not None:
            self._report(path, 'file/directory')
        else:
            self._tree = self._tree.set(path, theirs)

    def _merge_file(self, path: str, base: FileVersion, ours: FileVersion, theirs: FileVersion) -> None:
        # There are only two modes: if the sides differ, one has the mode of the base, and the other one is the change.
        mode = theirs.mode if ours.mode == base.mode else ours.mode
        if not _is_line_merge(base, ours, theirs):
            content = theirs if ours.digest == base.digest else ours
            self._tree = self._tree.set(path, content if content.mode == mode else replace(content, mode=mode))
            return
        old, one, two = (self._contents[version.digest] for version in (base, ours, theirs))
        if any(b'\0' in data for data in (old, one, two)):
            self._report(path, 'binary')
            return
        merged = merge_lines(old, one, two)
        if merged is None:
            self._report(path, 'content')
            return
        version = FileVersion(digest=digest_of(merged), size=len(merged), mode=mode)
        self._tree = self._tree.set(path, version)
        if version.digest not in self._contents:
            self._blobs[version.digest] = merged

    def _report(self, path: str, kind: ConflictKind) -> None:
        """Record a conflict; if one side has a file at or above `path` and the other a directory, at that file."""
        file = self._ours.file_above(path) or self._theirs.file_above(path)
        if file is not None or self._ours.is_dir(path) or self._theirs.is_dir(path):
            path, kind = file or path, 'file/directory'
        base, ours, theirs = _versions(path, self._base, self._ours, self._theirs)
        self._conflicts[path] = Conflict(path=path, kind=kind, base=base, ours=ours, theirs=theirs)


def _versions(path: str, *trees: Tree) -> tuple[FileVersion | None, ...]:
    return tuple(tree.get(path) for tree in trees)


def _changed_on_both_sides(base: Tree, ours: Tree, theirs: Tree) -> frozenset[str]:
    return frozenset(base.diff(ours).changed) & frozenset(base.diff(theirs).changed)


def _is_line_merge(base: FileVersion | None, ours: FileVersion | None, theirs: FileVersion | None) -> bool:
    """Return whether all three exist and have different contents."""
    versions = (base, ours, theirs)
    return len({version.digest for version in versions if version is not None}) == len(versions)
