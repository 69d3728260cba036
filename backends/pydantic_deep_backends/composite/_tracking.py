"""Versions of a composite: each part by its own means, in one tree.

The files of a part are in the tree where they appear. What a mount hides is left out of the part below it, by the rules
that its tracker gets, so that each part sees the tree that it returned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic_deep_backends._scan_budget import CAPTURE_ADVICE, scan_budget
from pydantic_deep_backends.errors import ReadOnlyError
from pydantic_deep_backends.local._directory import mount_point_of
from pydantic_deep_backends.paths import is_within
from pydantic_deep_backends.protocol import BackendProtocol
from pydantic_deep_backends.tracking import (
    Captured,
    DirectoryRules,
    FileTracker,
    Occupant,
    OmittedFile,
    SupportsPatch,
    SupportsTracking,
)
from pydantic_deep_backends.trees._tree import Tree

from ._mounts import Mount, MountTable


@dataclass(frozen=True, kw_only=True)
class MountedTree:
    """The part of a composite tree that belongs to one mounted backend."""

    mount: str
    """The mount point; `/` for the default."""
    root: str
    """Where the files of the part are in the tree; `''` for the root."""
    tree: Tree
    """The files of the part, by their paths in its own trees."""


@dataclass(frozen=True, kw_only=True)
class TrackedMount:
    """A mounted backend that can be tracked."""

    part: Mount
    backend: SupportsTracking
    root: str
    """Where its files are in the tree; `''` for the root."""

    @classmethod
    def of(cls, part: Mount) -> TrackedMount | None:
        """Return the part, if it can be tracked."""
        backend: BackendProtocol = part.backend
        if not isinstance(backend, SupportsTracking):
            return None
        return cls(part=part, backend=backend, root=f'{part.prefix}{mount_point_of(part.backend)}'.rstrip('/'))


class CompositeTracking:
    """`SupportsTracking` and `SupportsPatch` of a composite.

    Args:
        table: The parts.
        parts: The same, the default first.
    """

    def __init__(self, table: MountTable, parts: Sequence[TrackedMount]) -> None:
        self._table = table
        self._parts = parts

    def track(self, rules: DirectoryRules, *, max_file_bytes: int, tree: Tree | None = None) -> FileTracker:
        """Begin to note, in each part. The rules begin anew at the root of each.

        Args:
            rules: What is left out, from the root of a part on.
            max_file_bytes: Larger files are left out too.
            tree: The files as they are now, if the caller knows.
        """
        trackers = [
            part.backend.track(
                _MountRules(rules=rules, table=self._table, part=part.part, path=part.root),
                max_file_bytes=max_file_bytes,
                tree=None if tree is None else self.share_of(part, tree),
            )
            for part in self._parts
        ]
        return _CompositeTracker(self, list(zip(self._parts, trackers, strict=True)))

    async def patch(
        self, tree: Tree, paths: Iterable[str], contents: Mapping[str, bytes], *, is_durable: bool = True
    ) -> None:
        """Write the files of `tree` at `paths`, and remove those that it does not have.

        Args:
            tree: The files wanted.
            paths: Where they are wanted.
            contents: By digest, for all that is to be written.
            is_durable: Whether the files must survive a loss of power.

        Raises:
            ReadOnlyError: A path is in a part that cannot be patched; nothing was changed.
            ValueError: A path is where no part has files; nothing was changed.
            InvalidPathError: A path is one that no backend accepts; nothing was changed in its part.
            KeyError: BlobStore are missing; nothing was changed in its part.
        """
        patched: list[tuple[TrackedMount, SupportsPatch, list[str]]] = []
        for part, inner in self.by_part(paths):
            backend: object = part.backend
            if not isinstance(backend, SupportsPatch):
                raise ReadOnlyError(f'{part.root}{inner[0]}')
            patched.append((part, backend, inner))
        for part, backend, inner in patched:
            await backend.patch(self.share_of(part, tree), inner, contents, is_durable=is_durable)

    async def occupants(self, paths: Iterable[str]) -> Sequence[Occupant]:
        """Return what is at these paths, or above or below them, and is not a directory, sorted by path."""
        found: list[Occupant] = []
        for part, inner in self.by_part(paths):
            if isinstance(part.backend, SupportsPatch):
                occupants = await part.backend.occupants(inner)
                found += (replace(occupant, path=f'{part.root}{occupant.path}') for occupant in occupants)
        return sorted(found, key=lambda occupant: occupant.path)

    def split(self, tree: Tree) -> list[MountedTree]:
        """Return what `CompositeBackend.split` returns."""
        return [
            MountedTree(mount=part.part.prefix or '/', root=part.root, tree=self.share_of(part, tree))
            for part in self._parts
        ]

    def share_of(self, part: TrackedMount, tree: Tree) -> Tree:
        """Return what a tree has of a part."""
        share = tree.subtree(part.root or '/')
        for other in self._parts:
            if other is not part and is_within(other.root or '/', part.root or '/'):
                share = share.graft(other.root.removeprefix(part.root), Tree())
        return share

    def by_part(self, paths: Iterable[str]) -> list[tuple[TrackedMount, list[str]]]:
        """Return the paths that each part has, as it calls them. Raises `ValueError` for one that no part can have."""
        part_by_prefix = {part.part.prefix: part for part in self._parts}
        inner_by_prefix: dict[str, list[str]] = {}
        for path in paths:
            part = part_by_prefix[self._table.locate(path)[0].prefix]
            if not path.startswith(f'{part.root}/') or self._table.is_fixed(path):
                raise ValueError(f'A file at {path!r} would be in no part of the composite. Take another tree.')
            inner_by_prefix.setdefault(part.part.prefix, []).append(path.removeprefix(part.root))
        return [(part_by_prefix[prefix], inner) for prefix, inner in inner_by_prefix.items()]

    def joined(self, trees: Iterable[tuple[TrackedMount, Tree]]) -> Tree:
        """Return the tree of all parts; those of fewer components come first."""
        joined = Tree()
        for part, tree in trees:
            joined = joined.graft(part.root or '/', tree)
        return joined


class _CompositeTracker:
    """`FileTracker` over parts."""

    def __init__(self, files: CompositeTracking, trackers: Sequence[tuple[TrackedMount, FileTracker]]) -> None:
        self._files = files
        self._trackers = trackers

    async def capture(self, before: Tree, *, is_full: bool = False, also: Collection[str] = ()) -> Captured:
        """Return the files now."""
        trees: list[tuple[TrackedMount, Tree]] = []
        blobs: dict[str, bytes] = {}
        omitted: list[OmittedFile] = []
        also_by_root = {part.root: inner for part, inner in self._files.by_part(also)}
        with scan_budget(CAPTURE_ADVICE):
            for part, tracker in self._trackers:
                share = self._files.share_of(part, before)
                captured = await tracker.capture(share, is_full=is_full, also=also_by_root.get(part.root, ()))
                trees.append((part, captured.tree))
                blobs |= captured.blobs
                omitted += (replace(file, path=f'{part.root}{file.path}') for file in captured.omitted)
        return Captured(
            tree=self._files.joined(trees), blobs=blobs, omitted=tuple(sorted(omitted, key=lambda file: file.path))
        )

    def close(self) -> None:
        """Note nothing any more."""
        for _, tracker in self._trackers:
            tracker.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class _MountRules:
    """The rules of a directory of a part, which also leave out what a mount hides."""

    rules: DirectoryRules
    table: MountTable
    part: Mount
    path: str

    def with_ignore_file(self, data: bytes) -> DirectoryRules:
        return replace(self, rules=self.rules.with_ignore_file(data))

    def below(self, name: str) -> DirectoryRules:
        return replace(self, rules=self.rules.below(name), path=f'{self.path}/{name}')

    def leaves_out(self, name: str, *, is_dir: bool) -> bool:
        path = f'{self.path}/{name}'
        if self.table.locate(path)[0] is not self.part or (not is_dir and self.table.is_fixed(path)):
            return True
        return self.rules.leaves_out(name, is_dir=is_dir)
