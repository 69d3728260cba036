"""The mount point of a directory, the virtual paths above it, and searches that start there.

A directory that commands see at `/workspace` has the mount point `/workspace`, so that a path means the same to a
command and to a file operation. `/` is then a directory that contains only `workspace`. Nothing above the mount point
can change, and nothing exists beside it.
"""

from __future__ import annotations

import errno
import os
from typing import NoReturn

from pydantic_deep_backends.errors import OutsideRootError
from pydantic_deep_backends.paths import path_parts
from pydantic_deep_backends.protocol import FileEntry
from pydantic_deep_backends.search import FileTree

from ._confined_root import Components, OpenRoot


def path_from(names: Components) -> str:
    """Return the virtual path with these names."""
    return '/' + '/'.join(names)


def is_above(names: Components, shown: Components) -> bool:
    """Return whether a path is an ancestor of the mount point."""
    return len(names) < len(shown) and shown[: len(names)] == names


def below(names: Components, shown: Components, *, is_change: bool) -> Components:
    """Return the names of a path below the root.

    Raises:
        OutsideRootError: The operation is a change, and the path is outside of the root.
        FileNotFoundError: The operation is a read, and the path is outside of the root.
    """
    if names[: len(shown)] == shown:
        return names[len(shown) :]
    if is_change:
        raise OutsideRootError(path_from(names), root=path_from(shown))
    reason = f'There is nothing outside of {path_from(shown)!r}. Use a path below it'
    raise FileNotFoundError(errno.ENOENT, reason, path_from(names))


def raise_is_directory(root: OpenRoot, names: Components) -> NoReturn:
    """Raise `IsADirectoryError` for a path above the mount point."""
    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path_from(names))


def directory_entry(names: Components) -> FileEntry:
    """Return the metadata of a directory."""
    return FileEntry(name=names[-1] if names else '', path=path_from(names), is_dir=True, size=None)


class MountPointTree:
    """The `FileTree` of a search that starts above the mount point.

    Args:
        tree: The mounted directory.
        way: The names from the start of the search to the mounted directory.
    """

    def __init__(self, tree: FileTree, way: Components) -> None:
        self._tree = tree
        self._way = way

    def scan(self, directory: str) -> list[tuple[str, bool]]:
        """Return the name of each entry of one directory, and whether it is a directory."""
        names = path_parts(directory)
        if is_above(names, self._way):
            return [(self._way[len(names)], True)]
        return list(self._tree.scan('/'.join(below(names, self._way, is_change=False))))

    def read(self, name: str) -> bytes:
        """Return the contents of a file in the last scanned directory."""
        return self._tree.read(name)
