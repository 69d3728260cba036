"""Disk usage of a workspace, checked while a command runs.

No per-process limit bounds the total size of several files, and quotas need a file system that supports them. So the
free space is checked, which is cheap, and the files are counted once it has shrunk by a significant part of the limit.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import closing, suppress
from typing import TypeAlias

from pydantic_deep_backends.errors import BackendUnavailableError
from pydantic_deep_backends.files._confined_root import Components, ConfinedRoot
from pydantic_deep_backends.files._directories import MAX_DEPTH, Directories
from pydantic_deep_backends.files._operations import list_entries

from ._limits import SandboxLimits

_PARTS = 16
"""The files are counted when the disk has lost this fraction (1/16) of the limit since the last count. A command, or
several short ones in sequence, can exceed the limit by that much."""


_COUNT_SECONDS = 3.0
"""Maximum duration of one count. A command to kill runs on meanwhile, and may have created trees that take hours."""

FreeSpace: TypeAlias = tuple[int, int]
"""Free bytes and free inodes of a disk."""


class DiskUsageRecord:
    """The free space at the last count of a workspace. Shared by successive commands."""

    def __init__(self) -> None:
        self.counted_at: FreeSpace | None = None
        """The free space at the last count; `None` before the first one."""


class DiskWatch:
    """Monitors the disk usage of a directory during one command.

    Args:
        root: The directory.
        limits: The limits of the workspace.
        ledger: The record shared with earlier commands.
    """

    def __init__(self, root: ConfinedRoot, limits: SandboxLimits, ledger: DiskUsageRecord) -> None:
        self._root = root
        self._limits = limits
        self._ledger = ledger
        self._first: FreeSpace = (0, 0)

    def begin(self) -> None:
        """Record the current free space. Raises `FileNotFoundError` if the directory does not exist."""
        self._first = self._free_space()

    def __call__(self) -> str | None:
        """Return the reason to kill the command; `None` if it may continue."""
        limits = self._limits
        try:
            now = self._free_space()
            if not self._needs_count(now):
                return None
            self._ledger.counted_at = now
            size_bytes, files, is_complete = measure(self._root, limits)
        except (FileNotFoundError, BackendUnavailableError):
            return 'ended: the directory of the workspace was removed'
        lost_bytes, lost_files = (before - after for before, after in zip(self._first, now, strict=True))
        # In a workspace over its limits, a command that frees space may continue: otherwise nothing could clean up.
        if size_bytes > limits.disk_bytes and lost_bytes > 0:
            return f'ended: the workspace may take {limits.disk_bytes:,} bytes on the disk and took more'
        if files > limits.disk_files and (lost_files > 0 or lost_bytes > 0):
            return f'ended: the workspace may have {limits.disk_files:,} files and had more'
        # Lost to deleted files that are still open, to files that take too long to count, or to other processes.
        if lost_bytes > limits.disk_bytes * (2 if is_complete else 1):
            return f'ended: the disk lost {lost_bytes:,} bytes while the command ran'
        if not is_complete and lost_files > limits.disk_files:
            return f'ended: the disk lost {lost_files:,} files while the command ran'
        return None

    def _needs_count(self, now: FreeSpace) -> bool:
        last = self._ledger.counted_at
        if last is None:
            return True
        lost_bytes, lost_files = (before - after for before, after in zip(last, now, strict=True))
        return lost_bytes * _PARTS > self._limits.disk_bytes or lost_files * _PARTS > self._limits.disk_files

    def _free_space(self) -> FreeSpace:
        disk = os.statvfs(self._root.path)
        return disk.f_bfree * disk.f_frsize, disk.f_ffree


def measure(root: ConfinedRoot, limits: SandboxLimits) -> tuple[int, int, bool]:
    """Count the contents of a directory, stopping soon after a limit is reached or when the time is up.

    Returns:
        The disk space of all files and directories in bytes, their number, and whether the count is complete: it is not
        if time ran out or a directory is nested too deeply.
    """
    size_bytes = files = 0
    is_complete = True
    until = time.monotonic() + _COUNT_SECONDS
    with root.open() as opened, closing(Directories(opened)) as directories:
        waiting: list[Components] = [()]
        while waiting and size_bytes <= limits.disk_bytes and files <= limits.disk_files:
            if time.monotonic() > until:
                return size_bytes, files, False
            path = waiting.pop()
            with suppress(OSError):  # removed meanwhile, or not readable: not counted
                for entry in list_entries(directories.open(path)):
                    status = entry.stat(follow_symlinks=False)
                    size_bytes += status.st_blocks * 512 // status.st_nlink
                    files += 1
                    if files > limits.disk_files:
                        break
                    if not stat.S_ISDIR(status.st_mode):
                        continue
                    if len(path) < MAX_DEPTH:
                        waiting.append((*path, entry.name))
                    else:
                        is_complete = False
    return size_bytes, files, is_complete
