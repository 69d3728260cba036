"""Merges the changes of an overlay into its base, path by path, so that completed paths stay merged.

Removals come first, deepest first, then directories from the top, then files. Only paths that are still in the state
that the overlay saw are removed or replaced; anything else is a conflict, and its change stays in the overlay. The base
itself reports conflicts between files and directories, at the moment of the write.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import anyio

from pydantic_deep_backends.errors import FileChangedError, OutsideRootError
from pydantic_deep_backends.protocol import BackendProtocol, SupportsCompareAndSwap
from pydantic_deep_backends.trees._merge import Conflict, ConflictKind, merge_trees, needed_for_merge
from pydantic_deep_backends.trees._nodes import FileVersion
from pydantic_deep_backends.trees._tree import Tree

from ._layer import Content, Directory, Entry, Layer, Other, State, version_of

_MAX_ATTEMPTS: Final = 50
"""Maximum number of attempts to merge one file. Each attempt fails only because another writer has succeeded meanwhile.
"""


@dataclass(frozen=True, kw_only=True)
class OverlayMerge:
    """The result of a merge into the base."""

    changed: tuple[str, ...]
    """Files with contents that the overlay wrote, alone or merged with changes of others; sorted."""
    removed: tuple[str, ...]
    """Files and links that were removed because the overlay removed them, sorted."""
    conflicts: tuple[Conflict, ...]
    """Conflicts for a person to decide, sorted by path, at most one per path. `ours` is the base, `theirs` the overlay:
    the base keeps its own file, and the overlay keeps its change."""


class BaseMerge:
    """Merges a layer into its base. Repeats while the base changes."""

    def __init__(self, base: BackendProtocol, layer: Layer) -> None:
        self._base = base
        self._layer = layer
        self._one_at_a_time = anyio.Lock()
        self._changed: set[str] = set()
        self._removed: set[str] = set()
        self._conflicts: dict[str, Conflict] = {}

    async def run(self) -> OverlayMerge:
        """Merge all entries of the layer. The report includes earlier calls that failed partway."""
        async with self._one_at_a_time:
            self._conflicts = {}
            entries = dict(self._layer.entries())
            for path in await self._changed_directories(entries):
                for below, _ in list(self._layer.entries(path)):
                    entries.pop(below, None)
            for path, entry in sorted(entries.items(), key=_depth, reverse=True):
                if not await self._clear(path, entry):
                    del entries[path]
            for path, entry in entries.items():
                await self._put(path, entry)
            report = OverlayMerge(
                changed=tuple(sorted(self._changed)),
                removed=tuple(sorted(self._removed)),
                conflicts=tuple(self._conflicts[path] for path in sorted(self._conflicts)),
            )
            self._changed, self._removed = set(), set()
            return report

    async def _changed_directories(self, entries: dict[str, Entry]) -> list[str]:
        """Return the changed directories that a file would replace, and report them as conflicts."""
        paths: list[str] = []
        for path, entry in entries.items():
            if (
                isinstance(entry.now, Content)
                and isinstance(entry.was, Directory)
                and not await self._is_as_it_was(path)
            ):
                self._report(path, 'file/directory', entry, None)
                paths.append(path)
        return paths

    async def _is_as_it_was(self, directory: str) -> bool:
        """Return whether a removed directory has only contents that it had when it was removed."""
        for path, entry in list(self._layer.entries(directory)):
            there = await self._state(path)
            if there is not None and not _is_same(there, entry.was):
                return False
            if isinstance(there, Directory):
                names = {item.name for item in await self._base.list_dir(path)}
                known = {name for name, below, _ in self._layer.children(path) if below is not None and below.was}
                if not names <= known:
                    return False
        return True

    async def _clear(self, path: str, entry: Entry) -> bool:
        """Remove a path that the overlay removed or replaced by another kind; return whether that was possible."""
        if entry.was is None or isinstance(entry.now, type(entry.was)):
            return True
        there = await self._state(path)
        if isinstance(entry.was, Directory):
            if isinstance(there, Directory) and not await self._base.list_dir(path):
                await self._remove(path)
            return True
        if there is None:
            return True
        if not _is_same(there, entry.was):
            is_structural = isinstance(there, Directory) or isinstance(entry.now, Directory)
            kind = 'file/directory' if is_structural else 'modify/delete' if entry.now is None else 'add/add'
            self._report(path, kind, entry, version_of(there))
            return False
        await self._remove(path)
        if not isinstance(entry.now, Content):
            self._removed.add(path)
        return True

    async def _put(self, path: str, entry: Entry) -> None:
        """Write the state of the overlay to a path of the base, and remove the entry."""
        try:
            if isinstance(entry.now, Directory):
                await self._base.make_dir(path)
            elif isinstance(entry.now, Content) and not await self._put_file(path, entry, entry.now):
                return
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            file = await self._file_on_the_way(path)
            self._report(file, 'file/directory', entry if file == path else None, version_of(await self._state(file)))
            return
        self._settle(path, entry)

    async def _put_file(self, path: str, entry: Entry, now: Content) -> bool:
        was = entry.was if isinstance(entry.was, Content) else None
        for _ in range(_MAX_ATTEMPTS):
            ours = await self._read(path)
            joined = _join(path, was, ours, now)
            if isinstance(joined, Conflict):
                self._conflicts[path] = joined
                return False
            try:
                if joined is not None and (ours is None or joined.version != ours.version):
                    await self._swap(path, joined.whole, None if ours is None else ours.version.digest)
            except FileChangedError:
                continue
            if entry.is_changed:
                self._changed.add(path)
            return True
        raise FileChangedError(path, expected=None, actual=None)

    async def _swap(self, path: str, data: bytes, expected: str | None) -> None:
        if isinstance(self._base, SupportsCompareAndSwap):
            await self._base.compare_and_swap(path, data, expected=expected)
            return
        content = await self._read(path)
        actual = None if content is None else content.version.digest
        if actual != expected:
            raise FileChangedError(path, expected=expected, actual=actual)
        await self._base.write_bytes(path, data)

    async def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            await self._base.remove(path)

    async def _read(self, path: str) -> Content | None:
        try:
            return Content.of(await self._base.read_bytes(path))
        except FileNotFoundError:
            return None

    async def _state(self, path: str) -> State:
        try:
            return await state_of(self._base, path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def _file_on_the_way(self, path: str) -> str:
        """Return the file that blocks a parent of a path; the path itself if there is none."""
        for at, char in enumerate(path):
            if at and char == '/' and not isinstance(await self._state(path[:at]), Directory | None):
                return path[:at]
        return path

    def _settle(self, path: str, entry: Entry) -> None:
        """Remove a merged entry; if it changed meanwhile, the merged state becomes its original state."""
        now = self._layer.get(path)
        if now is entry or now is None:
            self._layer.discard(path)
        else:
            self._layer.set(path, replace(now, was=entry.now))

    def _report(self, path: str, kind: ConflictKind, entry: Entry | None, ours: FileVersion | None) -> None:
        base, theirs = (None, None) if entry is None else (version_of(entry.was), version_of(entry.now))
        self._conflicts[path] = Conflict(path=path, kind=kind, base=base, ours=ours, theirs=theirs)


async def state_of(base: BackendProtocol, path: str) -> State:
    """Return the state of a path in a base. Raises `FileNotFoundError`."""
    try:
        real = await base.realpath(path)
        if real != path:
            return Other(mark=real)
        entry = await base.stat(path)
    except OutsideRootError:
        return Other(mark='')
    except OSError as error:
        if error.errno == errno.ELOOP:
            return Other(mark='')
        raise
    if entry.is_dir:
        return Directory()
    return Other(mark='') if entry.size is None else Content.of(await base.read_bytes(path))


def _join(path: str, was: Content | None, ours: Content | None, theirs: Content) -> Content | Conflict | None:
    base, one, two = (Tree() if c is None else Tree.of({path: c.version}) for c in (was, ours, theirs))
    contents = {c.version.digest: c.data for c in (was, ours, theirs) if c is not None and c.data is not None}
    if not needed_for_merge(base, one, two) <= contents.keys():  # the original contents are known by digest only
        versions = version_of(was), version_of(ours), version_of(theirs)
        return Conflict(path=path, kind='content', base=versions[0], ours=versions[1], theirs=versions[2])
    result = merge_trees(base, one, two, contents)
    if result.conflicts:
        return result.conflicts[0]
    version = result.tree.get(path)
    return None if version is None else Content.of({**contents, **result.blobs}[version.digest])


def _is_same(one: State, two: State) -> bool:
    if isinstance(one, Content) and isinstance(two, Content):
        return one.version == two.version
    return one == two


def _depth(item: tuple[str, Entry]) -> int:
    return item[0].count('/')
