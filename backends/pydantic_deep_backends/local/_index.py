"""The index of a snapshot, with which the next snapshot reads only files that changed.

The rule is git's: a file with the same size, times, inode and mode as in its last reading has the same contents, unless
it changed so shortly before that reading that a second change could have the same timestamp.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from pydantic_deep_backends._scan_budget import ScanBudget, scan_budget
from pydantic_deep_backends.errors import InvalidPathError, ScanLimitError
from pydantic_deep_backends.files._confined_root import Components, HardLinkError, OpenRoot
from pydantic_deep_backends.files._directories import Directories
from pydantic_deep_backends.files._mount_point import path_from
from pydantic_deep_backends.files._operations import (
    ERRNO_NOT_REGULAR,
    is_temporary,
    list_entries,
    open_file,
    read_chunks,
)
from pydantic_deep_backends.paths import MAX_PATH_BYTES, display_path, parse_path
from pydantic_deep_backends.snapshots import FileVersion, Tree

RACY_NANOSECONDS = 2_000_000_000
"""Minimum age of a change at the time of reading for the file to count as unchanged: the coarsest file time in use
(FAT, 2 s). It also covers the 4 to 10 ms by which file times lag on Linux."""

EXECUTABLE_MODE = 0o755
"""The mode in trees of a file that its owner may execute."""

GONE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, ERRNO_NOT_REGULAR)
"""Errors of opening a file or directory that was removed or replaced after it was listed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A file as of its last reading."""

    signature: tuple[int, int, int, int, int]
    """Size, mtime and ctime in nanoseconds, inode, mode."""
    read_at: int
    """Time before the first byte was read, in nanoseconds since 1970."""
    version: FileVersion
    """The contents that were read."""

    def still_holds(self, signature: tuple[int, int, int, int, int]) -> bool:
        """Return whether a file with this signature certainly has these contents."""
        _, mtime, ctime, _, _ = signature
        return self.signature == signature and max(mtime, ctime) + RACY_NANOSECONDS < self.read_at


@dataclass(frozen=True, kw_only=True)
class SnapshotIndex:
    """The files at one point in time: their tree, and the readings from which the next tree is built."""

    tree: Tree = field(default_factory=Tree)
    """The tree of the files."""
    clock: Callable[[], int] = time.time_ns
    """The current time in nanoseconds since 1970, on the clock of the file system."""
    _readings: Mapping[str, Reading] = field(default_factory=dict[str, Reading])

    def scan(self, root: OpenRoot, checkpoint: Callable[[], None] = lambda: None) -> SnapshotIndex:
        """Return the index of the current files.

        Links, hard links to files outside, special files, our unfinished writes, and files with a path that no backend
        accepts are omitted.

        Args:
            root: The files.
            checkpoint: Called before each directory; may raise to end the scan.

        Raises:
            OSError: A directory or a file cannot be read, or is too large. In a tree, a missing file would count as
                removed.
            ScanLimitError: There are too many entries, some are nested too deeply, or the scan takes too long.
        """
        readings: dict[str, Reading] = {}
        with closing(Directories(root)) as directories, scan_budget() as budget:
            waiting: list[Components] = [()]
            while waiting:
                checkpoint()
                try:
                    waiting += self._scan_directory(root, directories, waiting.pop(), readings, budget)
                except OSError as error:
                    if error.errno not in GONE:
                        raise
        return SnapshotIndex(tree=self._tree_of(readings), clock=self.clock, _readings=readings)

    def _scan_directory(
        self,
        root: OpenRoot,
        directories: Directories,
        parts: Components,
        readings: dict[str, Reading],
        budget: ScanBudget,
    ) -> list[Components]:
        """Add the files of one directory to `readings`; return its subdirectories."""
        path = prefix = path_from(parts) if parts else ''
        try:
            descriptor = directories.open(parts)
            entries = budget.take(list_entries(descriptor, budget.most))
            for entry in entries:
                path = f'{prefix}/{entry.name}'
                if entry.is_file(follow_symlinks=False) and not is_temporary(entry.name):
                    budget.check_time()
                    self._scan_file(root, path, descriptor, entry, readings)
            below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            # A directory that no path leads to cannot have files in a tree, and there may be any number of them.
            return [(*parts, name) for name in below if is_in_trees(f'{prefix}/{name}')]
        except OSError as error:
            raise OSError(error.errno or errno.EIO, error.strerror, path) from None

    def _scan_file(
        self, root: OpenRoot, path: str, directory: int, entry: os.DirEntry[str], readings: dict[str, Reading]
    ) -> None:
        known = self._readings.get(path)
        if known is None and not is_in_trees(path):
            return
        try:
            if known is None or not known.still_holds(signature_of(entry.stat(follow_symlinks=False))):
                known = self._read(root, directory, entry.name)
            readings[path] = known
        except HardLinkError:
            return
        except OSError as error:
            if error.errno not in GONE:
                raise

    def _read(self, root: OpenRoot, directory: int, name: str) -> Reading:
        read_at = self.clock()
        descriptor, status = open_file(directory, name)
        try:
            root.check_links(status)
            digest, size = hashlib.sha256(), 0
            for chunk in read_chunks(descriptor):
                digest.update(chunk)
                size += len(chunk)
        finally:
            os.close(descriptor)
        mode = EXECUTABLE_MODE if status.st_mode & stat.S_IXUSR else 0o644
        version = FileVersion(digest=f'sha256:{digest.hexdigest()}', size=size, mode=mode)
        return Reading(signature_of(status), read_at, version)

    def _tree_of(self, readings: Mapping[str, Reading]) -> Tree:
        """Return the tree of the readings, derived from the last one if little changed."""
        new = [path for path, reading in readings.items() if self._readings.get(path) is not reading]
        gone = self._readings.keys() - readings.keys()
        return self.tree.with_changes(dict.fromkeys(gone) | {path: readings[path].version for path in new})


def signature_of(status: os.stat_result) -> tuple[int, int, int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode


def is_in_trees(path: str) -> bool:
    """Return whether a path can be in a tree; a name that is not valid in paths cannot.

    Raises:
        ScanLimitError: The path is too long, so it is nested too deeply.
    """
    if is_representable(path):
        return True
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        advice = 'Remove it, or move it up.'
        raise ScanLimitError('depth', MAX_PATH_BYTES, advice, path=display_path(path))
    return False


def is_representable(path: str) -> bool:
    """Return whether a path is valid: without control characters and undecodable bytes."""
    try:
        parse_path(path)
    except InvalidPathError:
        return False
    return True
