"""Many files at once: what stands where they are to go, and how they are put there directory by directory.

The files of one directory are written beside the old ones, made durable together, and then take their names: so a
disk is asked to be sure a few times for each directory and not for each file.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

from ._confined import Components, OpenRoot, Place
from ._directories import Directories
from ._files import is_temporary, list_entries, locked, start_file
from ._index import GONE
from ._restore import clear_way, restored_mode
from ._shown import path_from
from ._tree import Tree
from .paths import path_parts
from .tracking import Occupant

MAX_BATCH_FILES = 128
"""How many files are written before they take their names; each has an open descriptor until then."""

MAX_BATCH_BYTES = 67_108_864
"""How much is written before it takes its names."""


@dataclass(frozen=True, kw_only=True)
class NewFile:
    """A file to be put in a directory."""

    name: str
    data: bytes
    is_executable: bool


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Files of one directory that are put there together."""

    directory: Components
    files: Sequence[NewFile]


def batches_of(tree: Tree, paths: Iterable[str], contents: Mapping[str, bytes]) -> Iterator[Batch]:
    """Yield the files of `tree` at `paths` by directory. Raises `KeyError` if contents are missing."""
    files_by_directory: dict[Components, list[NewFile]] = {}
    for path in sorted(paths):
        *directory, name = path_parts(path)
        version = tree[path]
        file = NewFile(name=name, data=contents[version.digest], is_executable=version.mode == 0o755)
        files_by_directory.setdefault(tuple(directory), []).append(file)
    for directory, files in files_by_directory.items():
        batch: list[NewFile] = []
        size_bytes = 0
        for file in files:
            if batch and (len(batch) == MAX_BATCH_FILES or size_bytes + len(file.data) > MAX_BATCH_BYTES):
                yield Batch(directory=directory, files=batch)
                batch, size_bytes = [], 0
            batch.append(file)
            size_bytes += len(file.data)
        yield Batch(directory=directory, files=batch)


def put_batch(root: OpenRoot, batch: Batch, *, is_durable: bool) -> None:
    """Write files of one directory, each atomically; what stands in their way is removed."""

    def put(place: Place) -> None:
        with locked(place.directory):
            _put_files(place.directory, batch.files, is_durable=is_durable)

    first = (*batch.directory, batch.files[0].name)
    clear_way(root, first)
    root.visit(first, put, follow='none', make_dirs=True)


def find_occupants(root: OpenRoot, paths: Iterable[str]) -> list[Occupant]:
    """Return what `SupportsPatch.occupants` returns."""
    found: dict[str, bool] = {}
    with closing(Directories(root)) as directories:
        for path in paths:
            _find_on_the_way(directories, path_parts(path), found)
    return [Occupant(path=path, is_file=found[path]) for path in sorted(found)]


def _find_on_the_way(directories: Directories, parts: Components, found: dict[str, bool]) -> None:
    """Find what is at a path, below it, or, where that is no directory, above it."""
    for length in range(len(parts), 0, -1):
        try:
            status = os.stat(parts[length - 1], dir_fd=directories.open(parts[: length - 1]), follow_symlinks=False)
        except OSError as error:
            if error.errno not in GONE:
                raise
            continue
        if not stat.S_ISDIR(status.st_mode):
            found[path_from(parts[:length])] = stat.S_ISREG(status.st_mode)
        elif length == len(parts):
            _find_below(directories, parts, found)
        return


def _find_below(directories: Directories, top: Components, found: dict[str, bool]) -> None:
    waiting = [top]
    while waiting:
        above = waiting.pop()
        for entry in list_entries(directories.open(above)):
            below = (*above, entry.name)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(below)
            elif not is_temporary(entry.name):
                found[path_from(below)] = entry.is_file(follow_symlinks=False)


def _put_files(directory: int, files: Sequence[NewFile], *, is_durable: bool) -> None:
    written: dict[str, str] = {}
    descriptors: list[int] = []
    try:
        for file in files:
            temporary = f'.pydantic-deep-{secrets.token_hex(16)}.tmp'
            written[temporary] = file.name
            mode = restored_mode(directory, file.name, is_executable=file.is_executable)
            new_mode = 0o777 if file.is_executable else 0o666
            descriptors.append(start_file(directory, temporary, file.data, mode=mode, new_mode=new_mode))
        if is_durable:
            for descriptor in descriptors:
                os.fsync(descriptor)
        for temporary, name in list(written.items()):
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            del written[temporary]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        for temporary in written:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
    if is_durable:
        os.fsync(directory)
