"""Hard links: a file with another name outside of the directory may belong to somebody else, and is not read.

The path does not reveal such a link. So for a file with several names, those in the directory are counted: if some are
missing, they are outside.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from contextlib import closing, suppress

from pydantic_deep_backends._scan_budget import ScanBudget
from pydantic_deep_backends.errors import ScanLimitError

from ._confined_root import Components, HardLinkError, OpenRoot
from ._directories import MAX_DEPTH, Directories
from ._operations import list_entries


class HardLinks:
    """Counts the names of files in a directory, once per operation.

    Args:
        root: The directory.
    """

    def __init__(self, root: OpenRoot) -> None:
        self._root = root
        self._names: Counter[tuple[int, int]] | None = None

    def check(self, status: os.stat_result) -> None:
        """Raise if a file has a name outside of the directory.

        Args:
            status: The status of the open file.

        Raises:
            HardLinkError: The file has a name outside.
        """
        if status.st_nlink <= 1:
            return
        if self._names is None:
            try:
                self._names = self._count(ScanBudget('Copy it to read it'))
            except ScanLimitError as error:
                raise OSError(errno.EPERM, f'It is a hard link, and may have a name outside. {error}') from None
        if self._names[status.st_dev, status.st_ino] < status.st_nlink:
            raise HardLinkError(
                errno.EPERM, 'It is a hard link, and has a name outside of the directory. Copy it to read it'
            )

    def _count(self, budget: ScanBudget) -> Counter[tuple[int, int]]:
        """Return how many names each file has in the directory."""
        names: Counter[tuple[int, int]] = Counter()
        with closing(Directories(self._root)) as directories:
            waiting: list[Components] = [()]
            while waiting:
                parts = waiting.pop()
                with suppress(OSError):  # gone or not permitted; its contents do not count as inside
                    descriptor = directories.open(parts)
                    device = os.fstat(descriptor).st_dev
                    for entry in budget.take(list_entries(descriptor, budget.most)):
                        if not entry.is_dir(follow_symlinks=False):
                            names[device, entry.inode()] += 1
                        elif len(parts) < MAX_DEPTH:
                            waiting.append((*parts, entry.name))
        return names
