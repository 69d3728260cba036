"""How much of the disk a workspace takes, looked at while a command runs.

No limit of a process bounds what several files take together, and a quota needs a file system that has one. So the
free space is looked at, which costs nothing, and the files are counted when it has shrunk by a good part of the limit.
"""

from __future__ import annotations

import os
import stat
from contextlib import closing, suppress

from ._confined import Components, ConfinedRoot
from ._directories import Directories
from ._files import list_entries
from ._limits import SandboxLimits
from .errors import BackendUnavailableError

_PARTS = 16
"""The files are counted each time that the disk has lost this part of the limit: so far a command gets beyond it."""


class DiskWatch:
    """Watches a directory during one command.

    Args:
        root: The directory.
        limits: How much it may hold.
    """

    def __init__(self, root: ConfinedRoot, limits: SandboxLimits) -> None:
        self._root = root
        self._limits = limits
        self._first = self._last = (0, 0)

    def begin(self) -> None:
        """Remember how much room there is now. Raises `FileNotFoundError` if the directory does not exist."""
        self._first = self._last = self._look()

    def __call__(self) -> str | None:
        """Return why the command must end, if it must."""
        try:
            now = self._look()
            lost_bytes, lost_files = (before - after for before, after in zip(self._last, now, strict=True))
            if lost_bytes * _PARTS <= self._limits.disk_bytes and lost_files * _PARTS <= self._limits.disk_files:
                return None
            self._last = now
            size_bytes, files = measure(self._root, self._limits)
        except (FileNotFoundError, BackendUnavailableError):
            return 'ended: the directory of the workspace was removed'
        if size_bytes > self._limits.disk_bytes:
            return f'ended: the workspace may take {self._limits.disk_bytes:,} bytes on the disk and took more'
        if files > self._limits.disk_files:
            return f'ended: the workspace may have {self._limits.disk_files:,} files and had more'
        lost_bytes = self._first[0] - now[0]
        if lost_bytes > 2 * self._limits.disk_bytes:  # in files that have no name any more, or by somebody else
            return f'ended: the disk lost {lost_bytes:,} bytes while the command ran'
        return None

    def _look(self) -> tuple[int, int]:
        """Return how many bytes and how many files there is room for."""
        disk = os.statvfs(self._root.path)
        return disk.f_bfree * disk.f_frsize, disk.f_ffree


def measure(root: ConfinedRoot, limits: SandboxLimits) -> tuple[int, int]:
    """Return the bytes on the disk, and the number, of all files and directories; not much beyond a limit."""
    size_bytes = files = 0
    with root.open() as opened, closing(Directories(opened)) as directories:
        waiting: list[Components] = [()]
        while waiting and size_bytes <= limits.disk_bytes and files <= limits.disk_files:
            path = waiting.pop()
            with suppress(OSError):  # it was removed meanwhile, or cannot be read: then it is not counted
                for entry in list_entries(directories.open(path)):
                    status = entry.stat(follow_symlinks=False)
                    size_bytes += status.st_blocks * 512 // status.st_nlink
                    files += 1
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append((*path, entry.name))
    return size_bytes, files
