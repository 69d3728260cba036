"""`OverlayBackend`: a copy-on-write view of another backend, for changes that are merged into it later or discarded.

`_layer` stores the changed paths, `_search` searches, `_merge` merges them into the base, `_dump` serializes them for
another process. The operations here find the file that is visible at a path.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pydantic_deep_backends._checks import check_backend, check_contents
from pydantic_deep_backends._dotdot import resolve_dotdot_async, resolve_dotdot_strict
from pydantic_deep_backends.errors import FileChangedError
from pydantic_deep_backends.paths import is_within, path_parts, path_problem
from pydantic_deep_backends.protection import protected_patterns_of
from pydantic_deep_backends.protocol import BackendProtocol, BackendRef, FileEntry, FileEntryLike
from pydantic_deep_backends.search import GlobResult, GrepResult

from ._dump import JsonValue, dump_apart, dump_layer, load_apart, load_into
from ._layer import BaseVisibility, Content, Directory, Entry, Layer, State
from ._merge import BaseMerge, OverlayMerge, state_of
from ._search import glob_overlay, grep_overlay


class OverlayBackend:
    """The files of another backend, with changes on top that stay in memory until `merge`.

    Changes by others in the base are visible at every path that the overlay has not touched. Once the overlay has
    written or removed a path, its own state is visible there, and the original state of the base is stored for the
    merge.

    The overlay can search, and has compare-and-swap among its own users. It never runs commands, because a command
    would not see its files, and takes no snapshots, because that would read all files of the base. It does not own the
    base: close that where you opened it.

    Links of the base are followed, and a write through a link changes its target; the overlay itself creates no links.
    If the overlay changed the target of a link, a listing and a search still report the old size and the old lines
    under the name of the link, whereas reading it returns the new contents.

    Use it from one event loop.

    Args:
        base: The backend with the original files.
    """

    def __init__(self, base: BackendProtocol) -> None:
        check_backend(base)
        self._base = base
        self._layer = Layer()
        self._merge = BaseMerge(base, self._layer)
        self._ref = BackendRef(provider='overlay', id=uuid.uuid4().hex)

    @classmethod
    def load(cls, value: object, base: BackendProtocol) -> OverlayBackend:
        """Return an overlay with the changes that `dump` of another overlay returned.

        Args:
            value: The dump. It may come from an untrusted source, and is validated.
            base: A backend with the same files as the base of the dumped overlay. If they are in another directory,
                `relocate` the value first.

        Raises:
            InvalidOverlayError: The value is not a dump, or is too large.
        """
        overlay = cls(base)
        load_into(overlay._layer, value)
        return overlay

    @property
    def ref(self) -> BackendRef:
        """The identity of this view; every overlay of the same base has its own."""
        return self._ref

    @property
    def protected(self) -> tuple[str, ...]:
        """The patterns of protected files: those of the base."""
        return protected_patterns_of(self._base)

    @property
    def backend(self) -> BackendProtocol:
        """The base, into which `merge` writes."""
        return self._base

    @property
    def changed_paths(self) -> tuple[str, ...]:
        """Files that were created, changed or removed and are not merged yet, sorted; without directories."""
        return tuple(sorted(path for path, entry in self._layer.entries() if entry.is_changed))

    async def merge(self) -> OverlayMerge:
        """Merge all changes into the base, three-way for each path, and remove them from the overlay.

        A file that changed in the base too is merged line by line. If that is impossible, the file of the base stays
        unchanged, the path is listed in `conflicts`, and the change stays in the overlay. Writes use compare-and-swap
        if the base supports it, and are merged again if another writer was faster. On other bases, and for every
        removal, a change by another writer between the last check and the write is lost. If this call fails partway,
        call it again: completed merges stay, and the report covers both calls.

        Removing a directory removes the files that it had when the overlay removed it; files that others have added
        since keep it alive. A file that replaces a directory is written only if that directory has not changed.

        Raises:
            FileChangedError: Others kept changing one of the files.
            OSError: The base cannot be read or written.
        """
        return await self._merge.run()

    async def dump(self) -> JsonValue:
        """Return all changes of the overlay as JSON, from which another process can `load` it."""
        return dump_layer(self._layer)

    def dump_apart(self) -> tuple[JsonValue, Mapping[str, bytes]]:
        """Return the value of `dump` with the contents separated, by digest, for stores that save each content once."""
        return dump_apart(self._layer)

    def restore(self, value: object, contents: Mapping[str, bytes]) -> None:
        """Replace all changes of the overlay with those that `dump_apart` returned.

        Raises:
            InvalidOverlayError: The value is not a dump, or its contents are missing or differ; nothing was changed.
        """
        layer = Layer()
        load_apart(layer, value, contents)
        self._layer.take(layer)

    async def working_dir(self) -> str:
        """Return the working directory of the base."""
        return await self._base.working_dir()

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a file."""
        path = await resolve_dotdot_strict(self, path)
        key = await self.realpath(path)
        entry = self._layer.look(key)
        if isinstance(entry, Entry) and isinstance(entry.now, Content):
            return entry.now.whole
        if self._layer.shows_base(key):
            return await self._base.read_bytes(key)
        self._check_exists(path, entry)
        raise _error(IsADirectoryError, errno.EISDIR, path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file and the directories above it, in the overlay."""
        key = await self.realpath(await resolve_dotdot_strict(self, path))
        while not await self._try_write(key, data):
            pass

    async def stat(self, path: str) -> FileEntry:
        """Return the metadata of a file or directory."""
        path = await resolve_dotdot_strict(self, path)
        key = await self.realpath(path)
        own = self._layer.look(key)
        if self._layer.shows_base(key):
            entry = await self._base.stat(key)
            return _entry(path, is_dir=entry.is_dir, size=entry.size)
        self._check_exists(path, own)
        content = own.now if isinstance(own, Entry) and isinstance(own.now, Content) else None
        return _entry(path, is_dir=content is None, size=content.version.size if content else None)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """Return the entries of one directory, sorted by name."""
        path = await resolve_dotdot_strict(self, path)
        key = await self.realpath(path)
        prefix = path.rstrip('/')
        entries = {
            entry.name: _entry(f'{prefix}/{entry.name}', is_dir=entry.is_dir, size=entry.size)
            for entry in await self._list_base(path, key)
        }
        for name, entry, is_live in self._layer.children(key):
            content = entry.now if entry is not None and isinstance(entry.now, Content) else None
            if is_live:
                size = None if content is None else content.version.size
                entries[name] = _entry(f'{prefix}/{name}', is_dir=content is None, size=size)
            elif entry is not None:
                entries.pop(name, None)
        return [entries[name] for name in sorted(entries)]

    async def make_dir(self, path: str) -> None:
        """Create a directory and its parents in the overlay. An existing directory is fine."""
        path = await resolve_dotdot_strict(self, path)
        key = await self.realpath(path)
        while not await self._try_make_dir(path, key):
            pass

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it. A symbolic link is removed itself, not its target.

        The files of a directory of the base are read, because the merge needs their original state; only their digests
        are stored.

        Raises:
            FileNotFoundError: The path does not exist.
            ValueError: The path is the working directory or one of its ancestors.
            OSError: Something in the directory cannot be read; nothing was removed.
        """
        path = await resolve_dotdot_strict(self, path)
        parent, _, name = path.rpartition('/')
        key = f'{(await self.realpath(parent or "/")).rstrip("/")}/{name}'
        if is_within(await self.working_dir(), key):
            raise ValueError(
                f'{path!r} is or contains the working directory and cannot be removed. Remove its contents.'
            )
        while not await self._try_remove(path, key):
            pass

    async def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        try:
            path = await resolve_dotdot_strict(self, path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not self._layer.has_entry_on_the_way(path) and not await self._base.exists(path):
            return self._layer.is_live(await self.realpath(path))
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def realpath(self, path: str) -> str:
        """Return the path with the links of the base resolved, except those that the overlay removed or replaced."""
        path = await resolve_dotdot_async(path, self.realpath)
        if self._layer.has_entry_on_the_way(path):
            return path
        real = await self._base.realpath(path)
        if real == path or not self._layer.changes:
            return real
        at, parts = '', path_parts(path)
        for index, name in enumerate(parts, start=1):
            at = f'{at}/{name}'
            if self._layer.get(at) is not None:
                return '/'.join((at, *parts[index:]))
            at = (await self._base.realpath(at)).rstrip('/')
        return at or '/'

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        """Write `data` in the overlay if the visible file still has the digest `expected`."""
        path = await resolve_dotdot_strict(self, path)

        def check(now: Content | None) -> None:
            actual = None if now is None else now.version.digest
            if actual != expected:
                raise FileChangedError(path, expected=expected, actual=actual)

        key = await self.realpath(path)
        while not await self._try_write(key, data, check):
            pass

    async def glob(self, pattern: str, path: str = '/') -> GlobResult:
        """Return the visible files under `path` that match `pattern`, relative to `path`."""
        return await glob_overlay(self, self._base, self._layer, pattern, await resolve_dotdot_strict(self, path))

    async def grep(self, pattern: str, path: str = '/', *, glob: str | None = None, limit: int = 1000) -> GrepResult:
        """Return the lines of the visible file `path`, or the visible files under it, that match an RE2 expression."""
        path = await resolve_dotdot_strict(self, path)
        return await grep_overlay(self, self._base, self._layer, pattern, path, glob=glob, limit=limit)

    def __repr__(self) -> str:
        return f'<OverlayBackend of {len(self.changed_paths)} changed files over {self._base!r}>'

    # Below, the layer never changes after an `await` without a check that no other task changed it meanwhile.

    async def _try_write(self, key: str, data: bytes, check: Callable[[Content | None], None] | None = None) -> bool:
        """Write, and return whether that succeeded; nothing is written if the overlay changed meanwhile."""
        check_contents(data)
        changes = self._layer.changes
        content = await self._file_at(key)
        missing = [] if content is not None else await self._missing_directories(key)
        again = await self._read_again(key)
        if self._layer.changes != changes:
            return False
        if check is not None:
            check(content)
        if again is not None:
            self._layer.set(key, again)
        for directory in missing:
            self._layer.put(directory, Directory(), None)
        self._layer.put(key, Content.of(bytes(data)), content)
        return True

    async def _try_make_dir(self, path: str, key: str) -> bool:
        changes = self._layer.changes
        is_dir = await self._is_dir(key)
        if is_dir is not None:
            if not is_dir:
                raise _error(FileExistsError, errno.EEXIST, path)
            return True
        missing = await self._missing_directories(key)
        if self._layer.changes != changes:
            return False
        for directory in (*missing, key):
            self._layer.put(directory, Directory(), None)
        return True

    async def _try_remove(self, path: str, key: str) -> bool:
        changes = self._layer.changes
        own = self._layer.look(key)
        gone: dict[str, State] = {}
        if self._layer.shows_base(key):
            gone[key] = await state_of(self._base, key)
        else:
            self._check_exists(path, own)
        if isinstance(own, BaseVisibility):
            gone.setdefault(key, Directory())
        is_dir = isinstance(gone[key] if isinstance(own, BaseVisibility) else own.now, Directory)
        if is_dir and not (isinstance(own, Entry) and own.hides):
            await self._collect(key, gone)
        if self._layer.changes != changes:
            return False
        for below, was in gone.items():
            if self._layer.get(below) is None:
                self._layer.set(below, Entry(now=None, was=was))
        for below, entry in list(self._layer.entries(key)):
            self._layer.set(below, Entry(now=None, was=entry.was))
        return True

    async def _collect(self, directory: str, gone: dict[str, State]) -> None:
        """Collect the visible paths of the base below a directory; links are not followed."""
        try:
            entries = await self._base.list_dir(directory)
        except (FileNotFoundError, NotADirectoryError):  # only the overlay has this directory
            return
        for entry in entries:
            path = f'{directory}/{entry.name}'
            touched = self._layer.get(path)
            if path_problem(path) is not None or (touched is not None and touched.hides):
                continue
            state = (
                Directory() if touched is not None or self._layer.is_live(path) else await state_of(self._base, path)
            )
            gone[path] = replace(state, data=None) if isinstance(state, Content) else state
            if isinstance(state, Directory):
                await self._collect(path, gone)

    async def _file_at(self, key: str) -> Content | None:
        """Return the contents that a write would replace; `None` if no file exists."""
        entry = self._layer.look(key)
        if self._layer.shows_base(key):
            try:
                return Content.of(await self._base.read_bytes(key))
            except FileNotFoundError:
                return None
        if entry is BaseVisibility.BELOW_FILE:
            raise _error(NotADirectoryError, errno.ENOTDIR, key)
        now = entry.now if isinstance(entry, Entry) else Directory() if entry is BaseVisibility.BASE else None
        if isinstance(now, Directory):
            raise _error(IsADirectoryError, errno.EISDIR, key)
        return now

    async def _read_again(self, key: str) -> Entry | None:
        """Return the entry with its original contents, if only the digest was stored and the base still has them."""
        entry = self._layer.get(key)
        if entry is None or not isinstance(entry.was, Content) or entry.was.data is not None:
            return None
        try:
            content = Content.of(await self._base.read_bytes(key))
        except OSError:
            return None
        return replace(entry, was=content) if content.version == entry.was.version else None

    async def _is_dir(self, key: str) -> bool | None:
        """Return whether the visible path is a directory; `None` if it does not exist."""
        entry = self._layer.look(key)
        if self._layer.shows_base(key):
            try:
                return (await self._base.stat(key)).is_dir
            except FileNotFoundError:
                return None
        if entry is BaseVisibility.BELOW_FILE:
            raise _error(NotADirectoryError, errno.ENOTDIR, key)
        if isinstance(entry, Entry):
            return None if entry.now is None else isinstance(entry.now, Directory)
        return True if entry is BaseVisibility.BASE else None

    async def _missing_directories(self, key: str) -> list[str]:
        """Return the missing parents of a path, topmost first."""
        missing: list[str] = []
        parent = key.rpartition('/')[0]
        while parent:
            is_dir = await self._is_dir(parent)
            if is_dir is False:
                raise _error(NotADirectoryError, errno.ENOTDIR, key)
            if is_dir:
                break
            missing.insert(0, parent)
            parent = parent.rpartition('/')[0]
        return missing

    async def _list_base(self, path: str, key: str) -> Sequence[FileEntryLike]:
        """Return the entries of the base in a visible directory; empty if the overlay hides them."""
        entry = self._layer.look(key)
        is_of_base = self._layer.shows_base(key)
        if not is_of_base:
            self._check_exists(path, entry)
        if isinstance(entry, Entry):
            if isinstance(entry.now, Content):
                raise _error(NotADirectoryError, errno.ENOTDIR, path)
            if entry.hides:
                return ()
        try:
            return await self._base.list_dir(key)
        except (FileNotFoundError, NotADirectoryError):
            if is_of_base:
                raise
            return ()

    def _check_exists(self, path: str, entry: Entry | BaseVisibility) -> None:
        if entry is BaseVisibility.BELOW_FILE:
            raise _error(NotADirectoryError, errno.ENOTDIR, path)
        if entry is BaseVisibility.NOWHERE or (isinstance(entry, Entry) and entry.now is None):
            raise _error(FileNotFoundError, errno.ENOENT, path)


def _entry(path: str, *, is_dir: bool, size: int | None) -> FileEntry:
    return FileEntry(name=path.rpartition('/')[2], path=path, is_dir=is_dir, size=size)


def _error(kind: type[OSError], number: int, path: str) -> OSError:
    return kind(number, os.strerror(number), path)
