"""Changes to many files at once: listing the obstacles, writing the files and removing others.

Files are written under temporary names next to the files that they replace, made durable together, and then renamed,
directory by directory. The disk is synchronized a few times for all files, which makes thousands of files fast.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

from pydantic_deep_backends.files._confined_root import Components, OpenRoot
from pydantic_deep_backends.files._directories import Directories
from pydantic_deep_backends.files._mount_point import path_from
from pydantic_deep_backends.files._operations import (
    is_temporary,
    list_entries,
    locked,
    remove_entry,
    remove_stale_temporaries,
    start_file,
)
from pydantic_deep_backends.paths import path_parts
from pydantic_deep_backends.tracking import Occupant
from pydantic_deep_backends.trees._nodes import FileVersion
from pydantic_deep_backends.trees._tree import Tree

from ._index import EXECUTABLE_MODE, GONE

MAX_CHUNK_FILES = 4096
"""Maximum number of files that are written before they are renamed. Until then, they have temporary names."""

MAX_CHUNK_BYTES = 268_435_456
"""Maximum number of bytes that are written before the files are renamed: 256 MiB of temporary disk space."""

MAX_SINGLE_FSYNCS = 128
"""Up to this number, each file is synchronized by itself. For more files, one sync(2) writes all pending data of the
machine, which takes about as long as a few hundred files."""


_EXECUTE_BITS = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH

Naming: TypeAlias = Callable[[Components], AbstractContextManager[None]]
"""Adds the path of the operation to errors of the operating system, which contain only a name."""


@dataclass(frozen=True, kw_only=True)
class NewFile:
    """A file to write into a directory."""

    name: str
    data: bytes
    is_executable: bool


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Files that are made durable together."""

    files_by_directory: Mapping[Components, Sequence[NewFile]]
    is_durable: bool

    @property
    def paths(self) -> list[str]:
        """The target paths, as paths of trees."""
        return [path_from((*at, file.name)) for at, files in self.files_by_directory.items() for file in files]

    @property
    def is_synced_whole(self) -> bool:
        """Whether one sync covers all files. Linux only: other systems return before the data is written."""
        count = sum(map(len, self.files_by_directory.values()))
        return self.is_durable and count > MAX_SINGLE_FSYNCS and sys.platform == 'linux'


@dataclass(frozen=True, kw_only=True)
class StagedFiles:
    """Files of one directory, written under temporary names."""

    directory: Components
    name_by_temporary: dict[str, str] = field(default_factory=dict[str, str])
    """The final names, by temporary name; renamed files are removed from it."""


def batches_of(
    versions: Mapping[str, FileVersion | None], contents: Mapping[str, bytes], *, is_durable: bool
) -> list[Chunk]:
    """Return the files to write, in chunks. Raises `KeyError` if contents are missing."""
    wanted = ((path_parts(path), version) for path, version in versions.items() if version is not None)
    files = sorted(((parts, version, contents[version.digest]) for parts, version in wanted), key=itemgetter(0))
    chunks: list[Chunk] = []
    files_by_directory: dict[Components, list[NewFile]] = {}
    count = size_bytes = 0
    for (*directory, name), version, data in files:
        if count and (count == MAX_CHUNK_FILES or size_bytes + len(data) > MAX_CHUNK_BYTES):
            chunks.append(Chunk(files_by_directory=files_by_directory, is_durable=is_durable))
            files_by_directory, count, size_bytes = {}, 0, 0
        file = NewFile(name=name, data=data, is_executable=version.mode == 0o755)
        files_by_directory.setdefault(tuple(directory), []).append(file)
        count, size_bytes = count + 1, size_bytes + len(data)
    if count:
        chunks.append(Chunk(files_by_directory=files_by_directory, is_durable=is_durable))
    return chunks


def stage(root: OpenRoot, chunk: Chunk, naming: Naming) -> list[StagedFiles]:
    """Write files under temporary names, and remove everything that blocks them. On failure, no file remains.

    Raises:
        DirectoryLockedError: Another writer holds the lock of a directory with something to remove.
    """
    staged: list[StagedFiles] = []
    is_done = False
    try:
        with closing(Directories(root)) as directories:
            for directory, files in chunk.files_by_directory.items():
                staged.append(StagedFiles(directory=directory))
                with naming(directory):
                    _stage_here(directories.make(directory), staged[-1], files, chunk)
        if chunk.is_synced_whole:
            os.sync()
        is_done = True
    finally:
        if not is_done:
            discard(root, staged)
    return staged


def stage_stream(root: OpenRoot, path: str, version: FileVersion, naming: Naming) -> tuple[StagedFiles, int]:
    """Create an empty file under a temporary name, and remove everything that blocks it; return its descriptor too.

    Raises:
        DirectoryLockedError: Another writer holds the lock of a directory with something to remove.
    """
    *directory, name = path_parts(path)
    staged = StagedFiles(directory=tuple(directory))
    file = NewFile(name=name, data=b'', is_executable=version.mode == EXECUTABLE_MODE)
    try:
        with closing(Directories(root)) as directories, naming(staged.directory):
            return staged, _start(directories.make(staged.directory), staged, file)
    except BaseException:
        discard(root, [staged])
        raise


def settle(root: OpenRoot, waiting: list[StagedFiles], naming: Naming, *, is_durable: bool) -> None:
    """Rename staged files to their final names.

    Args:
        root: The directory with the files.
        waiting: The staged files; completed directories are removed from the list.
        naming: Adds the path to errors.
        is_durable: Whether to synchronize each directory.

    Raises:
        DirectoryLockedError: Another writer holds the lock of a directory. Call again to resume.
    """
    with closing(Directories(root)) as directories:
        while waiting:
            staged = waiting[0]
            with naming(staged.directory):
                _settle_here(directories.open(staged.directory), staged, is_durable=is_durable)
            del waiting[0]


def _settle_here(directory: int, staged: StagedFiles, *, is_durable: bool) -> None:
    with locked(directory):
        for temporary, name in list(staged.name_by_temporary.items()):
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            del staged.name_by_temporary[temporary]
        if is_durable:
            os.fsync(directory)


def discard(root: OpenRoot, staged: Iterable[StagedFiles]) -> None:
    """Remove the files that have not been renamed."""
    with closing(Directories(root)) as directories:
        for files in staged:
            for temporary in files.name_by_temporary:
                with suppress(OSError):  # the directory is gone with its files; or the original error is more important
                    os.unlink(temporary, dir_fd=directories.open(files.directory))


def remove_files(root: OpenRoot, waiting: list[tuple[Components, list[str]]], naming: Naming) -> None:
    """Remove files.

    Args:
        root: The directory with the files.
        waiting: Directories and names in them; completed directories are removed from the list.
        naming: Adds the path to errors.

    Raises:
        DirectoryLockedError: Another writer holds the lock of a directory. Call again to resume.
    """
    with closing(Directories(root)) as directories:
        while waiting:
            at, names = waiting[0]
            with naming(at), suppress(FileNotFoundError, NotADirectoryError):
                _unlink_all(directories.open(at), names)
            del waiting[0]


def prune(root: OpenRoot, parents: Iterable[Components], tree: Tree) -> None:
    """Remove directories and their parents if they are empty and not in `tree`.

    Raises:
        DirectoryLockedError: Another writer holds the lock of a directory. Call again to resume.
    """
    with closing(Directories(root)) as directories:
        for parts in sorted(_unwanted(parents, tree), reverse=True):  # subdirectories first
            with suppress(OSError):  # not empty, or gone
                above = directories.open(parts[:-1])
                with locked(above):
                    os.rmdir(parts[-1], dir_fd=above)


def _unwanted(parents: Iterable[Components], tree: Tree) -> set[Components]:
    """Return those of these directories and their parents that are not in a tree."""
    wanted: dict[Components, Tree] = {(): tree}
    unwanted: set[Components] = set()
    for parts in parents:
        ahead: list[Components] = []
        while parts not in wanted and parts not in unwanted:
            ahead.append(parts)
            parts = parts[:-1]
        for below in reversed(ahead):
            files = wanted[below[:-1]].subtree(f'/{below[-1]}') if below[:-1] in wanted else Tree()
            if files:
                wanted[below] = files
            else:
                unwanted.add(below)
    return unwanted


def _unlink_all(directory: int, names: Iterable[str]) -> None:
    with locked(directory):
        for name in names:
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=directory)
        os.fsync(directory)


def by_directory(paths: Iterable[str]) -> list[tuple[Components, list[str]]]:
    """Return the names by directory, in the order of a walk."""
    names_by_directory: dict[Components, list[str]] = {}
    for path in sorted(paths, key=path_parts):
        *directory, name = path_parts(path)
        names_by_directory.setdefault(tuple(directory), []).append(name)
    return list(names_by_directory.items())


def find_occupants(root: OpenRoot, paths: Iterable[str], naming: Naming) -> list[Occupant]:
    """Return the result of `SupportsPatch.occupants`."""
    is_file_by_path: dict[str, bool] = {}
    with closing(Directories(root)) as directories:
        for path in paths:
            with naming(path_parts(path)):
                _find_on_the_way(directories, path_parts(path), is_file_by_path)
    return [Occupant(path=path, is_file=is_file_by_path[path]) for path in sorted(is_file_by_path)]


def _find_on_the_way(directories: Directories, parts: Components, is_file_by_path: dict[str, bool]) -> None:
    """Find everything at a path or below it or, if the path does not exist, the file above it."""
    for length in range(len(parts), 0, -1):
        try:
            status = os.stat(parts[length - 1], dir_fd=directories.open(parts[: length - 1]), follow_symlinks=False)
        except OSError as error:
            if error.errno not in GONE:
                raise
            continue
        if not stat.S_ISDIR(status.st_mode):
            is_file_by_path[path_from(parts[:length])] = stat.S_ISREG(status.st_mode)
        elif length == len(parts):
            _find_below(directories, parts, is_file_by_path)
        return


def _find_below(directories: Directories, top: Components, is_file_by_path: dict[str, bool]) -> None:
    waiting = [top]
    while waiting:
        above = waiting.pop()
        for entry in list_entries(directories.open(above)):
            below = (*above, entry.name)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(below)
            elif not is_temporary(entry.name):
                is_file_by_path[path_from(below)] = entry.is_file(follow_symlinks=False)


def _stage_here(directory: int, staged: StagedFiles, files: Sequence[NewFile], chunk: Chunk) -> None:
    is_synced = chunk.is_durable and not chunk.is_synced_whole
    remove_stale_temporaries(directory, time.time_ns())
    for file in files:
        descriptor = _start(directory, staged, file)
        try:
            if is_synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _start(directory: int, staged: StagedFiles, file: NewFile) -> int:
    """Write a file under a temporary name; return its descriptor."""
    temporary = f'.pydantic-deep-{secrets.token_hex(16)}.tmp'
    staged.name_by_temporary[temporary] = file.name
    mode = _restored_mode(directory, file.name, is_executable=file.is_executable)
    new_mode = 0o777 if file.is_executable else 0o666
    return start_file(directory, temporary, file.data, mode=mode, new_mode=new_mode)


def _restored_mode(directory: int, name: str, *, is_executable: bool) -> int | None:
    """Return the permission bits for a file that exists; anything that is not a regular file is removed."""
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
