"""`LocalDirectory`: runs the operations of `LocalBackend` in its directory.

Operations run in worker threads, and open the directory by a descriptor. Operations that change files record the paths
that they touch, and retry while another writer holds a lock.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio

from pydantic_deep_backends._dotdot import resolve_dotdot
from pydantic_deep_backends._threads import check_cancelled, run_to_completion
from pydantic_deep_backends.errors import BackendError
from pydantic_deep_backends.files._confined_root import Components, ConfinedRoot, Location, OpenRoot, open_directory
from pydantic_deep_backends.files._directories import DirectoryFileTree, stat_location
from pydantic_deep_backends.files._hard_links import HardLinks
from pydantic_deep_backends.files._mount_point import MountPointTree, below, is_above, path_from, raise_is_directory
from pydantic_deep_backends.files._operations import DirectoryLockedError, is_temporary, list_entries, read_file
from pydantic_deep_backends.paths import parse_path, path_parts
from pydantic_deep_backends.protocol import FileEntry
from pydantic_deep_backends.search import FileTree
from pydantic_deep_backends.wrapper import WrapperBackend

from ._touched_paths import TouchLog

T = TypeVar('T')

LOCK_WAITS_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016) + (0.03,) * 1000
"""Pauses between attempts to lock a directory, 30 seconds in all: far longer than any write holds the lock."""


def _real_directory(root: OpenRoot, parts: Components) -> Components:
    def look(place: Location) -> Components:
        if not stat.S_ISDIR(stat_location(place).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return place.canonical

    return root.visit(parts, look)


class LocalDirectory:
    """Runs operations in a directory that they cannot leave.

    Args:
        root: The directory.
        allow_commands: Whether commands may run without isolation. If so, the directory is mounted at its real path,
            not at `/`.
        allow_hard_links: Whether to read files with another hard link outside of the directory.
    """

    _aliases: tuple[str, ...] = ()
    """Additional names of the directory that only commands see."""

    def __init__(self, root: str | os.PathLike[str], *, allow_commands: bool, allow_hard_links: bool) -> None:
        self._configured_root = str(Path(root).absolute())
        self._allow_commands = allow_commands
        self._allow_hard_links = allow_hard_links
        self._confined: ConfinedRoot | None = None
        self._touch_log = TouchLog()

    @contextmanager
    def _recording(self, place: Location) -> Generator[None]:
        """Record the path that an operation touches, even if it fails."""
        try:
            yield
        finally:
            self._touch_log.add(path_from(place.canonical))

    @contextmanager
    def _recording_all(self) -> Generator[None]:
        """Record that a command may change any path, until it has ended."""
        self._touch_log.add_all()
        try:
            yield
        finally:
            self._touch_log.add_all()

    def _list(self, root: OpenRoot, parts: Components) -> list[FileEntry]:
        def list_place(place: Location) -> list[FileEntry]:
            stat_location(place)
            descriptor = open_directory(place.directory, place.name)
            try:
                return list(self._entries(root, parts, place.canonical, descriptor))
            finally:
                os.close(descriptor)

        return sorted(root.visit(parts, list_place), key=lambda entry: entry.name)

    def _entries(
        self, root: OpenRoot, parts: Components, canonical: Components, descriptor: int
    ) -> Iterator[FileEntry]:
        for entry in list_entries(descriptor):
            path = self._virtual((*parts, entry.name))
            if is_temporary(entry.name):
                continue
            if not entry.is_symlink():
                with suppress(FileNotFoundError):
                    yield file_entry(path, entry.stat(follow_symlinks=False))
                continue
            try:
                yield file_entry(path, root.visit((*canonical, entry.name), stat_location))
            except OSError:  # broken, leads outside, or not permitted: list the link itself
                yield FileEntry(name=entry.name, path=path, is_dir=False, size=None)

    @contextmanager
    def _searched(self, root: OpenRoot, parts: Components) -> Generator[DirectoryFileTree]:
        start = root.resolve(parts)
        if not stat.S_ISDIR(root.visit(start, stat_location, follow='none').st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with closing(DirectoryFileTree(root, start, check_cancelled)) as tree:
            yield tree

    @contextmanager
    def _searched_above(self, root: OpenRoot, names: Components) -> Generator[FileTree]:
        with self._searched(root, ()) as tree:
            yield MountPointTree(tree, self._mount_parts()[len(names) :])

    async def _run_locked(
        self,
        path: str,
        operation: Callable[[OpenRoot, Components], T],
        *,
        above: Callable[[OpenRoot, Components], T] = raise_is_directory,
    ) -> T:
        """Run an operation that locks a directory, and retry while another writer holds the lock.

        The pauses are here, not in the thread, so that they can be cancelled and do not occupy a worker thread.
        """
        return await _until_unlocked(lambda: path, lambda: self._run(path, operation, above=above, is_change=True))

    async def _retry(self, operation: Callable[[OpenRoot], T], at: Callable[[], Components] = tuple) -> T:
        """Run an operation on the whole directory that locks directories, and retry like `_run_locked`.

        Args:
            operation: The operation. Each attempt continues where the last one stopped.
            at: Returns the path at which the last attempt stopped, for the error.
        """
        return await _until_unlocked(lambda: self._virtual(at()), lambda: self._run_at_root(operation))

    async def _run(
        self,
        path: str,
        operation: Callable[[OpenRoot, Components], T],
        *,
        above: Callable[[OpenRoot, Components], T] = raise_is_directory,
        is_change: bool = False,
        resolve_parent: Callable[[OpenRoot, Components], Components] = _real_directory,
    ) -> T:
        """Run an operation in a worker thread. Once started, it ends, even if the caller is cancelled.

        Args:
            path: The path of the operation.
            operation: Called with the root, and the names of `path` below it.
            above: Called instead if `path` is an ancestor of the mount point, with all names of `path`.
            is_change: Whether the operation changes files.
            resolve_parent: Returns the canonical names of a directory before a `..`.
        """
        unresolved = parse_path(path, climbs=True)

        def run() -> T:
            with naming(path), self._open() as root:
                mount = self._mount_parts()
                names = path_parts(
                    resolve_dotdot(
                        unresolved, lambda directory: self._canonical(directory, partial(resolve_parent, root))
                    )
                )
                if is_above(names, mount):
                    return above(root, names)
                return operation(root, below(names, mount, is_change=is_change))

        return await run_to_completion(run)

    def _canonical(self, path: str, resolve: Callable[[Components], Components]) -> str:
        """Return the canonical path of a directory; `resolve` resolves the part below the root."""
        names, mount = path_parts(path), self._mount_parts()
        return path if is_above(names, mount) else self._virtual(resolve(below(names, mount, is_change=False)))

    async def _run_at_root(self, operation: Callable[[OpenRoot], T]) -> T:
        """Run an operation on the whole directory in a worker thread."""

        def run() -> T:
            with naming('/'), self._open() as root:
                return operation(root)

        return await run_to_completion(run)

    @contextmanager
    def _open(self) -> Generator[OpenRoot]:
        """Open the directory for one operation."""
        with self._root().open() as root:
            if not self._allow_hard_links:
                root.check_links = HardLinks(root).check
            yield root

    def _root(self) -> ConfinedRoot:
        """Return the directory by its real path, which is cached once the directory exists."""
        if self._confined is not None:
            return self._confined
        real = os.path.realpath(self._configured_root)
        confined = ConfinedRoot(path=real, aliases=(self._configured_root, *self._aliases))
        if Path(real).is_dir():
            self._confined = confined
        return confined

    def _mount_parts(self) -> Components:
        """Return the mount point of the directory."""
        return path_parts(self._root().path) if self._allow_commands else ()

    def _virtual(self, parts: Components) -> str:
        """Return the virtual path of names below the directory."""
        return path_from((*self._mount_parts(), *parts))

    def _naming(self, parts: Components) -> AbstractContextManager[None]:
        return naming(self._virtual(parts))

    def _of_tree(self, path: str) -> str:
        """Return the virtual path for a path in a tree."""
        return self._virtual(path_parts(path))


def mount_point_of(backend: object) -> str:
    """Return the mount point of a backend, where its trees start; `/` for a backend without a directory."""
    backend = _unwrap(backend)
    if not isinstance(backend, LocalDirectory):
        return '/'
    return path_from(backend._mount_parts())  # pyright: ignore[reportPrivateUsage] - of a class of this file


def has_fixed_mount_point(backend: object) -> bool:
    """Return whether backends with the same settings have the same mount point for any directory."""
    backend = _unwrap(backend)
    return not isinstance(backend, LocalDirectory) or not backend._allow_commands  # pyright: ignore[reportPrivateUsage] - of a class of this file


def _unwrap(backend: object) -> object:
    while isinstance(backend, WrapperBackend):
        backend = backend.wrapped
    return backend


async def _until_unlocked(path: Callable[[], str], attempt: Callable[[], Awaitable[T]]) -> T:
    for wait_seconds in LOCK_WAITS_SECONDS:
        try:
            return await attempt()
        except DirectoryLockedError:
            await anyio.sleep(wait_seconds)
    raise TimeoutError(errno.ETIMEDOUT, 'Another writer has locked its directory. Try again later', path())


@contextmanager
def naming(path: str) -> Generator[None]:
    """Put the requested path into errors of the operating system, which contain only a name."""
    try:
        yield
    except BackendError:
        raise
    except OSError as error:
        named = isinstance(error.filename, str) and error.filename.startswith('/')
        raise OSError(error.errno or errno.EIO, error.strerror, error.filename if named else path) from None


def file_entry(path: str, status: os.stat_result) -> FileEntry:
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    return FileEntry(name=path.rpartition('/')[2], path=path, is_dir=stat.S_ISDIR(status.st_mode), size=size)


def read_at(root: OpenRoot, place: Location) -> bytes:
    return read_file(place.directory, place.name, root.check_links)
