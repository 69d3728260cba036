"""What a restore does to one file, without following any link: the tree says where files are, not where links lead."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from ._confined import Components, OpenRoot, Place
from ._files import locked, remove_entry, replace_file
from .snapshots import Tree

_EXECUTE_BITS = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


def take_away(root: OpenRoot, path: Components, tree: Tree) -> None:
    """Remove a file that `tree` does not have, and the directories above it that are empty then and not in `tree`."""
    with suppress(FileNotFoundError, NotADirectoryError):
        root.visit(path, _unlink, follow='none')
    prune(root, path[:-1], tree)


def prune(root: OpenRoot, path: Components, tree: Tree) -> None:
    """Remove a directory and those above it, as far as they are empty and not in `tree`."""
    for length in range(len(path), 0, -1):
        if tree.is_dir('/' + '/'.join(path[:length])):
            return
        with suppress(OSError):  # not empty, or gone: then the ones above it are not empty either, or the next goes
            root.visit(path[:length], _remove_if_empty, follow='none')


def clear_way(root: OpenRoot, path: Components) -> None:
    """Remove what is not a directory where the parents of a file must be: links, and files of later trees."""
    for length in range(1, len(path)):
        try:
            root.visit(path[:length], _remove_unless_directory, follow='none')
        except FileNotFoundError:
            return


def put_file(root: OpenRoot, path: Components, data: bytes, *, is_executable: bool) -> None:
    """Write a file where the tree has it, in place of a link or a directory that is there."""

    def put(place: Place) -> None:
        with locked(place.directory):
            replace_file(
                place.directory,
                place.name,
                data,
                mode=restored_mode(place.directory, place.name, is_executable=is_executable),
                new_mode=0o777 if is_executable else 0o666,
            )

    root.visit(path, put, follow='none', make_dirs=True)


def restored_mode(directory: int, name: str, *, is_executable: bool) -> int | None:
    """Return the permission bits for a file that is there; what is in its way is removed."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        remove_entry(directory, name)
        return None
    mode = stat.S_IMODE(status.st_mode)
    if not is_executable:
        return mode & ~_EXECUTE_BITS
    return mode | (mode >> 2) & _EXECUTE_BITS | stat.S_IXUSR


def _unlink(place: Place) -> None:
    with locked(place.directory):
        os.unlink(place.name, dir_fd=place.directory)
        os.fsync(place.directory)


def _remove_if_empty(place: Place) -> None:
    with locked(place.directory):
        os.rmdir(place.name, dir_fd=place.directory)


def _remove_unless_directory(place: Place) -> None:
    status = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        with locked(place.directory):
            os.unlink(place.name, dir_fd=place.directory)
