"""Snapshots of a composite: the trees of all parts, each at its mount point, and their restoration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from pydantic_deep_backends._fetch import contents_of, fetch_contents, files_to_write
from pydantic_deep_backends._scan_budget import check_size, scan_budget
from pydantic_deep_backends.paths import path_parts
from pydantic_deep_backends.protocol import ReadBlob, SupportsSnapshots
from pydantic_deep_backends.tracking import SupportsPatch
from pydantic_deep_backends.trees._tree import Tree, TreeDiff

from ._mounts import Mount, MountTable


class CompositeSnapshots:
    """`SupportsSnapshots` for a composite in which every part supports it.

    Args:
        table: The mounts.
        backends: The same parts with their backends, the default first.
        read_bytes: Reads a file of the composite.
    """

    def __init__(
        self,
        table: MountTable,
        backends: Sequence[tuple[Mount, SupportsSnapshots]],
        read_bytes: Callable[[str], Awaitable[bytes]],
    ) -> None:
        self._table = table
        self._backends = backends
        self._read_bytes = read_bytes

    async def snapshot(self) -> Tree:
        """Return a tree of all current files, without those that a mount hides.

        Raises:
            ScanLimitError: All parts together have too many files, or the scan takes too long.
        """
        return _joined(await self._trees())

    async def changes(self, tree: Tree) -> TreeDiff:
        """Return the changes from `tree` to the current files."""
        return tree.diff(await self.snapshot())

    async def restore(self, tree: Tree, read_blob: ReadBlob | None = None) -> None:
        """Make the files equal to `tree`. Files that a mount hides stay unchanged.

        Args:
            tree: The desired files.
            read_blob: Fetches contents that neither the tree nor the files of any part have.

        Raises:
            MissingBlobError: Some contents are unavailable; nothing was changed.
            InvalidPathError: The tree has a path that no backend accepts; nothing was changed.
            ValueError: The tree has a file at a mount point or one of its parents; nothing was changed.
            ScanLimitError: All parts together or the tree have too many files, or the scan takes too long; nothing was
                changed.
        """
        check_size(tree)
        for part in self._table.mounted:
            file = part.prefix if part.prefix in tree else tree.file_above(part.prefix)
            if file is not None:
                raise ValueError(f'The tree has a file at {file!r}, where a backend is mounted. Restore another tree.')
        with scan_budget():
            trees = await self._trees()
            before = _joined(trees)
            wanted = files_to_write(tree, before.diff(tree))
            contents = await fetch_contents(wanted, contents_of(before, self._read_bytes), read_blob)

        async def read(digest: str) -> bytes:
            return contents[digest]

        for (part, backend), (_, current) in zip(self._backends, trees, strict=True):
            share = self._share_of(part, tree, current)
            with part.errors('/'):
                if isinstance(backend, SupportsPatch):  # its current files are known already
                    diff = current.diff(share)
                    await backend.patch(share, (*diff.removed, *diff.changed, *diff.added), contents)
                else:
                    await backend.restore(share, read)

    async def _trees(self) -> list[tuple[Mount, Tree]]:
        """Return the tree of each part, within one common budget."""
        trees: list[tuple[Mount, Tree]] = []
        with scan_budget():
            for part, backend in self._backends:
                with part.errors('/'):
                    trees.append((part, await backend.snapshot()))
        return trees

    def _share_of(self, part: Mount, tree: Tree, current: Tree) -> Tree:
        """Return the tree to restore in a part: its share of `tree`, and its current files that a mount hides."""
        share = tree.subtree(part.prefix or '/')
        for mount in self._table.below(part.prefix or '/'):
            at = '/' + '/'.join(path_parts(mount.prefix)[len(part.key) :])
            share = _without(share, at).graft(at, current.subtree(at))
            hidden_file = at if at in current else current.file_above(at)
            hidden = None if hidden_file is None else current.get(hidden_file)
            if hidden_file is not None and hidden is not None and not share.is_dir(hidden_file):
                share = share.set(hidden_file, hidden)
        return share


def _joined(trees: Iterable[tuple[Mount, Tree]]) -> Tree:
    """Return one tree with all trees at their mount points. Those with fewer components must come first."""
    joined = Tree()
    for part, tree in trees:
        joined = _without(joined, part.prefix).graft(part.prefix, tree) if part.prefix else tree
    return joined


def _without(tree: Tree, path: str) -> Tree:
    """Return a tree without `path`, everything below it, and a file at one of its parents."""
    file = path if path in tree else tree.file_above(path)
    return (tree if file is None else tree.remove(file)).graft(path, Tree())
