"""Snapshots of a composite: the trees of all parts, each at its mount point, and the way back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from ._contents import StoredVersion
from ._mounts import MountTable, Part
from ._nodes import FileVersion, digest_of
from ._tree import Tree, TreeDiff
from .errors import MissingBlobError
from .paths import parse_path, path_parts
from .protocol import ReadBlob, SupportsSnapshots


class MountedSnapshots:
    """`SupportsSnapshots` over parts that all have it.

    Args:
        table: The parts.
        backends: The same parts with their backends, the default first.
        read_bytes: Reads a file of the composite.
    """

    def __init__(
        self,
        table: MountTable,
        backends: Sequence[tuple[Part, SupportsSnapshots]],
        read_bytes: Callable[[str], Awaitable[bytes]],
    ) -> None:
        self._table = table
        self._backends = backends
        self._read_bytes = read_bytes

    async def snapshot(self) -> Tree:
        """Return the tree of all files now, without those that a mount hides."""
        return _joined([(part, await backend.snapshot()) for part, backend in self._backends])

    async def changes(self, tree: Tree) -> TreeDiff:
        """Return what changed from `tree` to the files now."""
        return tree.diff(await self.snapshot())

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        """Make the files equal to `tree`; what a mount hides stays as it is.

        Args:
            tree: The files wanted.
            read_blob: Fetches contents that neither the tree nor the files of any part have.

        Raises:
            MissingBlobError: Contents are not to be had; nothing was changed.
            InvalidPathError: The tree has a path that no backend accepts; nothing was changed.
            ValueError: The tree has a file where a backend is mounted, or above; nothing was changed.
        """
        for part in self._table.mounted:
            file = part.prefix if part.prefix in tree else tree.file_above(part.prefix)
            if file is not None:
                raise ValueError(f'The tree has a file at {file!r}, where a backend is mounted. Restore another tree.')
        trees = [(part, await backend.snapshot()) for part, backend in self._backends]
        contents = await self._fetch(_joined(trees), tree, read_blob)

        async def read(digest: str) -> bytes:
            return contents[digest]

        for (part, backend), (_, current) in zip(self._backends, trees, strict=True):
            await backend.restore(self._share_of(part, tree, current), read)

    async def _fetch(self, current: Tree, tree: Tree, read_blob: ReadBlob | None) -> dict[str, bytes]:
        """Return the contents of all files that differ: before the first change, as parts change one by one."""
        path_by_digest = {version.digest: path for path, version in current.items()}
        contents: dict[str, bytes] = {}
        lacking: list[str] = []
        diff = current.diff(tree)
        wanted = {path: tree.get(parse_path(path)) for path in (*diff.changed, *diff.added)}
        for path, version in wanted.items():
            if version is None or version.digest in contents:
                continue
            data = await self._find(version, path_by_digest, read_blob)
            if data is None:
                lacking.append(path)
            else:
                contents[version.digest] = data
        if lacking:
            raise MissingBlobError(tuple(sorted(lacking)))
        return contents

    async def _find(
        self, version: FileVersion, path_by_digest: Mapping[str, str], read_blob: ReadBlob | None
    ) -> bytes | None:
        if isinstance(version, StoredVersion):
            return version.blob.data
        data: bytes | None = None
        if version.digest in path_by_digest:
            with suppress(OSError):  # it changed since the snapshot, so the contents must come from elsewhere
                data = await self._read_bytes(path_by_digest[version.digest])
        if data is None and read_blob is not None:
            with suppress(KeyError):
                data = await read_blob(version.digest)
        return data if data is not None and digest_of(data) == version.digest else None

    def _share_of(self, part: Part, tree: Tree, current: Tree) -> Tree:
        """Return what a part is to hold: its share of the tree, and what it has now where a mount hides it."""
        share = tree.subtree(part.prefix or '/')
        for mount in self._table.below(part.prefix or '/'):
            at = '/' + '/'.join(path_parts(mount.prefix)[len(part.key) :])
            share = _without(share, at).graft(at, current.subtree(at))
            hidden_file = at if at in current else current.file_above(at)
            hidden = None if hidden_file is None else current.get(hidden_file)
            if hidden_file is not None and hidden is not None and not share.is_dir(hidden_file):
                share = share.set(hidden_file, hidden)
        return share


def _joined(trees: Iterable[tuple[Part, Tree]]) -> Tree:
    """Put trees at their mount points; those with fewer components come first."""
    joined = Tree()
    for part, tree in trees:
        joined = _without(joined, part.prefix).graft(part.prefix, tree) if part.prefix else tree
    return joined


def _without(tree: Tree, path: str) -> Tree:
    """Return a tree with nothing at `path` and no file above it."""
    file = path if path in tree else tree.file_above(path)
    return (tree if file is None else tree.remove(file)).graft(path, Tree())
