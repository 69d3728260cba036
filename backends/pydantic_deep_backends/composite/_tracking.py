"""Tracking of a composite: each part with its own tracker, combined into one tree.

The tree contains the files of a part at their virtual paths. Files that a mount hides are omitted from the underlying
part by the rules passed to its tracker, so that each part receives the same tree that it returned.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Collection, Iterable, Mapping, Sequence
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
    OpenStream,
    SupportsPatch,
    SupportsStreamedPatch,
    SupportsTracking,
)
from pydantic_deep_backends.trees._tree import Tree

from ._mounts import Mount, MountTable


@dataclass(frozen=True, kw_only=True)
class MountedTree:
    """The share of a composite tree that belongs to one part."""

    mount: str
    """The mount point; `/` for the default."""
    root: str
    """Path of the part's files in the tree; `''` for the root."""
    tree: Tree
    """The files of the part, with the paths of its own trees."""


@dataclass(frozen=True, kw_only=True)
class TrackedMount:
    """A part that supports tracking."""

    part: Mount
    backend: SupportsTracking
    root: str
    """Path of its files in the tree; `''` for the root."""

    @classmethod
    def of(cls, part: Mount) -> TrackedMount | None:
        """Return the part; `None` if it does not support tracking."""
        backend: BackendProtocol = part.backend
        if not isinstance(backend, SupportsTracking):
            return None
        return cls(part=part, backend=backend, root=f'{part.prefix}{mount_point_of(part.backend)}'.rstrip('/'))


class CompositeTracking:
    """`SupportsTracking` and `SupportsPatch` of a composite.

    Args:
        table: The mounts.
        parts: The parts that support tracking, the default first.
    """

    def __init__(self, table: MountTable, parts: Sequence[TrackedMount]) -> None:
        self._table = table
        self._parts = parts

    def track(self, rules: DirectoryRules, *, max_file_bytes: int, tree: Tree | None = None) -> FileTracker:
        """Start recording in each part. The rules apply from the root of each part.

        Args:
            rules: The ignore rules of the root of a part.
            max_file_bytes: Larger files are omitted too.
            tree: The current files, if known.
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
        """Write the files of `tree` at `paths`, and remove files at `paths` that are not in `tree`.

        Args:
            tree: The desired files.
            paths: The paths to change.
            contents: The contents of all files to write, by digest.
            is_durable: Whether the files must survive a power loss.

        Raises:
            ReadOnlyError: A path is in a part that does not support patches; nothing was changed.
            ValueError: A path is outside of the files of all parts; nothing was changed.
            InvalidPathError: No backend accepts one of the paths; nothing was changed in its part.
            KeyError: Some contents are missing; nothing was changed in the part that needs them.
        """
        patched: list[tuple[TrackedMount, SupportsPatch, list[str]]] = []
        for part, inner in self.by_part(paths):
            backend: object = part.backend
            if not isinstance(backend, SupportsPatch):
                raise ReadOnlyError(f'{part.root}{inner[0]}')
            patched.append((part, backend, inner))
        for part, backend, inner in patched:
            await backend.patch(self.share_of(part, tree), inner, contents, is_durable=is_durable)

    async def patch_stream(
        self, tree: Tree, path: str, chunks: AsyncIterable[bytes], *, is_durable: bool = True
    ) -> None:
        """Write the file of `tree` at `path`. A part without `patch_stream` receives the chunks as one.

        Args:
            tree: The desired files.
            path: A file of the tree.
            chunks: Its contents.
            is_durable: Whether the file must survive a power loss.

        Raises:
            ReadOnlyError: The file is in a part that does not support patches; nothing was changed.
            ValueError: The path is outside of the files of all parts; nothing was changed.
        """
        ((part, (inner,)),) = self.by_part([path])
        backend: object = part.backend
        if isinstance(backend, SupportsStreamedPatch):
            await backend.patch_stream(self.share_of(part, tree), inner, chunks, is_durable=is_durable)
        else:
            contents = {tree[path].digest: b''.join([chunk async for chunk in chunks])}
            await self.patch(tree, [path], contents, is_durable=is_durable)

    async def occupants(self, paths: Iterable[str]) -> Sequence[Occupant]:
        """Return everything at, above or below these paths that is not a directory, sorted by path."""
        combined: list[Occupant] = []
        for part, inner in self.by_part(paths):
            if isinstance(part.backend, SupportsPatch):
                occupants = await part.backend.occupants(inner)
                combined += (replace(occupant, path=f'{part.root}{occupant.path}') for occupant in occupants)
        return sorted(combined, key=lambda occupant: occupant.path)

    def split(self, tree: Tree) -> list[MountedTree]:
        """Return the result of `CompositeBackend.split`."""
        return [
            MountedTree(mount=part.part.prefix or '/', root=part.root, tree=self.share_of(part, tree))
            for part in self._parts
        ]

    def share_of(self, part: TrackedMount, tree: Tree) -> Tree:
        """Return the share of a tree that belongs to a part."""
        share = tree.subtree(part.root or '/')
        for other in self._parts:
            if other is not part and is_within(other.root or '/', part.root or '/'):
                share = share.graft(other.root.removeprefix(part.root), Tree())
        return share

    def by_part(self, paths: Iterable[str]) -> list[tuple[TrackedMount, list[str]]]:
        """Return the paths of each part, relative to it. Raises `ValueError` for a path outside of all parts."""
        part_by_prefix = {part.part.prefix: part for part in self._parts}
        inner_by_prefix: dict[str, list[str]] = {}
        for path in paths:
            part = part_by_prefix[self._table.locate(path)[0].prefix]
            if not path.startswith(f'{part.root}/') or self._table.is_fixed(path):
                raise ValueError(f'No part of the composite has files at {path!r}. Use another tree.')
            inner_by_prefix.setdefault(part.part.prefix, []).append(path.removeprefix(part.root))
        return [(part_by_prefix[prefix], inner) for prefix, inner in inner_by_prefix.items()]

    def joined(self, trees: Iterable[tuple[TrackedMount, Tree]]) -> Tree:
        """Return one tree of all parts. Those with fewer components must come first."""
        joined = Tree()
        for part, tree in trees:
            joined = joined.graft(part.root or '/', tree)
        return joined


class _CompositeTracker:
    """`FileTracker` of a composite, over the trackers of its parts."""

    def __init__(self, files: CompositeTracking, trackers: Sequence[tuple[TrackedMount, FileTracker]]) -> None:
        self._files = files
        self._trackers = trackers

    async def capture(self, before: Tree, *, is_full: bool = False, also: Collection[str] = ()) -> Captured:
        """Return the current files of all parts."""
        trees: list[tuple[TrackedMount, Tree]] = []
        blobs: dict[str, bytes] = {}
        streams: dict[str, OpenStream] = {}
        omitted: list[OmittedFile] = []
        in_use: list[str] = []
        also_by_root = {part.root: inner for part, inner in self._files.by_part(also)}
        with scan_budget(CAPTURE_ADVICE):
            for part, tracker in self._trackers:
                share = self._files.share_of(part, before)
                captured = await tracker.capture(share, is_full=is_full, also=also_by_root.get(part.root, ()))
                trees.append((part, captured.tree))
                blobs |= captured.blobs
                streams |= captured.streams
                omitted += (replace(file, path=f'{part.root}{file.path}') for file in captured.omitted)
                in_use += (f'{part.root}{path}' for path in captured.in_use)
        return Captured(
            tree=self._files.joined(trees),
            blobs=blobs,
            streams=streams,
            omitted=tuple(sorted(omitted, key=lambda file: file.path)),
            in_use=in_use,
        )

    def close(self) -> None:
        """Stop recording in all parts."""
        for _, tracker in self._trackers:
            tracker.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class _MountRules:
    """Rules of a directory of a part, extended to omit files that a mount hides."""

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
