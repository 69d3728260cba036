"""Walks over the directories of a whole tree, for searches and snapshots.

Links to directories are not followed. For a search, a link to a file inside the root counts as a file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from itertools import takewhile

from pydantic_deep_backends._search_results import MAX_FILE_BYTES
from pydantic_deep_backends.paths import path_parts
from pydantic_deep_backends.search._grep import too_large

from ._confined_root import Components, Location, OpenRoot, make_directory, open_directory
from ._operations import is_temporary, list_entries, locked, read_file, read_start, stat_entry

_MAX_OPEN = 32
"""Number of nearest parent directories that stay open; a process has 1,024 descriptors or fewer by default."""

_MARK_EVERY = 64
"""Of the more distant parents, one in this many stays open, so that going back up costs a few calls instead of a walk
from the root. The longest path has 2,048 names, so these are 32 at most."""


MAX_DEPTH = 2_048
"""Maximum nesting of directories that are visited: the longest path has no more names."""


class Directories:
    """Opens directories below the root without following any link.

    A depth-first walk, with siblings in any order, opens a directory at most twice on average, however deep the tree
    is.
    """

    def __init__(self, root: OpenRoot) -> None:
        self._root = root.descriptor
        self._path: Components = ()
        """The current directory."""
        self._open: list[int | None] = []
        """Descriptors of the directories from the root to the current one; `None` for closed ones."""

    def open(self, path: Components) -> int:
        """Open a directory; the descriptor is valid until the next call.

        Raises:
            OSError: A name on the path is missing, a link, not a directory, or not readable.
        """
        return self._reach(path, open_directory)

    def make(self, path: Components) -> int:
        """Open a directory after creating the missing parts of its path. A file or link on the path is removed.

        Raises:
            DirectoryLockedError: Something must be removed, and another writer holds the lock of its directory.
            OSError: A directory cannot be created or read.
        """
        return self._reach(path, _open_or_make)

    def close(self) -> None:
        """Close all descriptors."""
        self._leave(0)

    def _reach(self, path: Components, step: Callable[[int, str], int]) -> int:
        self._leave(_count_shared(path, self._path))
        level = len(self._open)
        while level and self._open[level - 1] is None:
            level -= 1
        above = self._open[level - 1] if level else None
        descriptor = self._root if above is None else above
        for name in path[level:]:
            descriptor = step(descriptor, name)
            self._arrive(level, descriptor)
            level += 1
        self._path = path
        return descriptor

    def _arrive(self, level: int, descriptor: int) -> None:
        """Record an open directory, and close a parent that exceeds the limit."""
        if level < len(self._open):
            self._open[level] = descriptor
        else:
            self._open.append(descriptor)
        above = level - _MAX_OPEN
        if above >= 0 and (above + 1) % _MARK_EVERY:
            self._close(above)

    def _leave(self, level: int) -> None:
        """Close the directories below a level."""
        self._path = self._path[:level]
        while len(self._open) > level:
            self._close(len(self._open) - 1)
            self._open.pop()

    def _close(self, level: int) -> None:
        descriptor, self._open[level] = self._open[level], None
        if descriptor is not None:
            os.close(descriptor)


class DirectoryFileTree:
    """The `search.FileTree` of a directory.

    Args:
        root: The files.
        start: The directory, without links.
        checkpoint: Called before each directory; may raise to end the search.
    """

    def __init__(self, root: OpenRoot, start: Components, checkpoint: Callable[[], None]) -> None:
        self._root = root
        self._start = start
        self._checkpoint = checkpoint
        self._directories = Directories(root)
        self._path = start
        self._descriptor = root.descriptor
        self._links: set[str] = set()

    def scan(self, directory: str) -> list[tuple[str, bool]]:
        """Return the name of each entry of one directory, and whether it is a directory."""
        self._checkpoint()
        self._path = (*self._start, *path_parts(directory))
        self._descriptor = self._directories.open(self._path)
        self._links = set()
        return [
            (entry.name, is_dir)
            for entry in list_entries(self._descriptor)
            if ((is_dir := entry.is_dir(follow_symlinks=False)) or self._is_file(entry))
        ]

    def read(self, name: str) -> bytes:
        """Return the contents of a file in the last scanned directory."""
        if name in self._links:
            return self._root.visit((*self._path, name), self._read_to_search)
        data = read_start(self._descriptor, name, MAX_FILE_BYTES + 1, self._root.check_links)
        if len(data) > MAX_FILE_BYTES:
            raise _too_large(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_size)
        return data

    def close(self) -> None:
        """Close all descriptors."""
        self._directories.close()

    def _read_to_search(self, place: Location) -> bytes:
        size_bytes = stat_location(place).st_size
        if size_bytes > MAX_FILE_BYTES:
            raise _too_large(size_bytes)
        return read_file(place.directory, place.name, self._root.check_links)

    def _is_file(self, entry: os.DirEntry[str]) -> bool:
        if entry.is_file(follow_symlinks=False):
            return not is_temporary(entry.name)
        if not entry.is_symlink():
            return False
        try:
            status = self._root.visit((*self._path, entry.name), stat_location)
        except OSError:  # broken, leads outside, or not permitted: not a file here
            return False
        self._links.add(entry.name)
        return stat.S_ISREG(status.st_mode)


def stat_location(place: Location) -> os.stat_result:
    """Return the status of the entry at the end of a walk."""
    return stat_entry(place.directory, place.name)


def _too_large(size_bytes: int) -> OSError:
    return OSError(errno.EFBIG, too_large(size_bytes))


def _count_shared(one: Components, two: Components) -> int:
    """Return the number of leading names that two paths share; fast if `two` is below the parent of `one`."""
    if one[:-1] == two[: len(one) - 1]:
        return len(one) if one == two[: len(one)] else max(len(one) - 1, 0)
    return sum(1 for _ in takewhile(_are_equal, zip(one, two, strict=False)))


def _are_equal(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def _open_or_make(directory: int, name: str) -> int:
    try:
        return open_directory(directory, name)
    except FileNotFoundError:
        pass
    except OSError as error:
        # Permissions and limits of the system, which tests that run as root cannot trigger.
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):  # pragma: no branch
            raise  # pragma: no cover
        with locked(directory):
            os.unlink(name, dir_fd=directory)
    make_directory(directory, name)
    return open_directory(directory, name)
