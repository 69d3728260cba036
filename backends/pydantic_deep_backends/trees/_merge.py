"""Three-way merge of trees: clean where only one side changed, line by line where both did, a conflict otherwise.

Nothing is guessed: what cannot be joined without a decision is a `Conflict`, and the merged tree keeps ours there.
`_text_merge` merges two texts.
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
"""What the two sides did, ours first.

`content`: both changed the same or neighbouring lines. `binary`: both changed a file that is not text (it holds a NUL
byte). `add/add`: both added the file, differently. `delete/modify` and `modify/delete`: one removed what the other
changed. `file/directory`: the path is a file on one side and a directory on the other.
"""


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """A file that the two sides cannot have both; the merged tree keeps ours."""

    path: str
    """The file. For `file/directory` the path that is a file on one side and a directory on the other."""
    kind: ConflictKind
    """Why it cannot be merged."""
    base: FileVersion | None
    """What was there before both; `None` if nothing was, or a directory."""
    ours: FileVersion | None
    """What we have there; `None` if nothing, or a directory."""
    theirs: FileVersion | None
    """What they have there; `None` if nothing, or a directory."""


@dataclass(frozen=True, kw_only=True)
class MergeResult:
    """A merged tree, and what a person has to decide."""

    tree: Tree
    """The files: both sides where they agree, ours wherever there is a conflict."""
    conflicts: tuple[Conflict, ...]
    """Sorted by path, one a path."""
    blobs: Mapping[str, bytes]
    """Contents by digest that the merge made: the tree names them and nobody has them yet."""


def needed_for_merge(base: Tree, ours: Tree, theirs: Tree) -> frozenset[str]:
    """Return the digests of the contents that `merge_trees` has to see: of files that all three have differently."""
    candidates = _changed_on_both_sides(base, ours, theirs)
    trios = (_versions(path, base, ours, theirs) for path in candidates)
    return frozenset(v.digest for trio in trios if _is_line_merge(*trio) for v in trio if v is not None)


def merge_trees(base: Tree, ours: Tree, theirs: Tree, contents: Mapping[str, bytes]) -> MergeResult:
    """Join what changed from `base` to `ours` and from `base` to `theirs`.

    Args:
        base: The tree that both sides started from.
        ours: One side; where there is a conflict, the result keeps it.
        theirs: The other side.
        contents: Bytes by digest, at least for `needed_for_merge(base, ours, theirs)`.

    Raises:
        MissingBlobError: BlobStore that are needed are not in `contents`.
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
        # Removals first: a file makes room for a directory of its name.
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
        # There are two modes only: if both sides differ, one of them is the base's and the other one is the change.
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
        """List a conflict; where one side has a file at or above `path` and the other a directory, at that file."""
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
    """Return whether all three exist with contents of their own."""
    versions = (base, ours, theirs)
    return len({version.digest for version in versions if version is not None}) == len(versions)
