"""The directories of a whole tree, opened one after another: what searches and snapshots go through.

No link to a directory is followed. A link to a file that stays inside of the root is a file for a search.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from itertools import takewhile

from ._confined import Components, OpenRoot, Place, open_directory
from ._files import is_temporary, list_entries, look_at, read_file, read_start
from ._grep import too_large
from ._results import MAX_FILE_BYTES
from .paths import path_parts

_MAX_OPEN = 32
"""How many directories are kept open to start the next from; a process has 1,024 descriptors or fewer by default."""


class Directories:
    """Opens directories below the root without following any link; a neighbour of the last one opens fast."""

    def __init__(self, root: OpenRoot) -> None:
        self._root = root.descriptor
        self._chain: list[tuple[str, int]] = []
        """The directories on the way to the last one, from the root down."""
        self._beyond: int | None = None
        """The last directory if the chain is too short for it."""

    def open(self, path: Components) -> int:
        """Open a directory; the descriptor is good until the next call.

        Raises:
            OSError: A name on the way is missing, a link, not a directory, or may not be read.
        """
        self._keep(sum(1 for _ in takewhile(_are_equal, zip(path, (name for name, _ in self._chain), strict=False))))
        descriptor = self._chain[-1][1] if self._chain else self._root
        for name in path[len(self._chain) :]:
            descriptor = open_directory(descriptor, name)
            if len(self._chain) < _MAX_OPEN:
                self._chain.append((name, descriptor))
            else:
                self._close_beyond()
                self._beyond = descriptor
        return descriptor

    def close(self) -> None:
        """Close all that is open."""
        self._keep(0)

    def _keep(self, count: int) -> None:
        self._close_beyond()
        while len(self._chain) > count:
            os.close(self._chain.pop()[1])

    def _close_beyond(self) -> None:
        if self._beyond is not None:
            os.close(self._beyond)
            self._beyond = None


class SearchedTree:
    """A directory and all below it, as a search looks at it (`search.FileTree`).

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
        """Return the name and whether it is a directory, of each file and directory of one directory."""
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
        """Return the contents of a file of the directory scanned last."""
        if name in self._links:
            return self._root.visit((*self._path, name), _read_to_search)
        data = read_start(self._descriptor, name, MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise _too_large(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_size)
        return data

    def close(self) -> None:
        """Close all that is open."""
        self._directories.close()

    def _is_file(self, entry: os.DirEntry[str]) -> bool:
        if entry.is_file(follow_symlinks=False):
            return not is_temporary(entry.name)
        if not entry.is_symlink():
            return False
        try:
            status = self._root.visit((*self._path, entry.name), look_at_place)
        except OSError:  # dangling, leads outside, or may not be followed: not a file here
            return False
        self._links.add(entry.name)
        return stat.S_ISREG(status.st_mode)


def look_at_place(place: Place) -> os.stat_result:
    """Return the status of what a walk ended at."""
    return look_at(place.directory, place.name)


def _read_to_search(place: Place) -> bytes:
    size_bytes = look_at_place(place).st_size
    if size_bytes > MAX_FILE_BYTES:
        raise _too_large(size_bytes)
    return read_file(place.directory, place.name)


def _too_large(size_bytes: int) -> OSError:
    return OSError(errno.EFBIG, too_large(size_bytes))


def _are_equal(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]
