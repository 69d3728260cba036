"""Hard links: a file that has a name outside of a directory is a file of somebody else, and is not read.

A link of this kind cannot be told by its path. So of a file with several names those that are in the directory are
counted: if some are missing, they are elsewhere.
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
    """The names of files in a directory, counted during one operation.

    Args:
        root: The directory.
    """

    def __init__(self, root: OpenRoot) -> None:
        self._root = root
        self._names: Counter[tuple[int, int]] | None = None

    def check(self, status: os.stat_result) -> None:
        """Refuse a file that has a name outside of the directory.

        Args:
            status: Of the open file.

        Raises:
            HardLinkError: It has one.
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
                with suppress(OSError):  # it is gone, or nobody may look: what is in it does not count as inside
                    descriptor = directories.open(parts)
                    device = os.fstat(descriptor).st_dev
                    for entry in budget.take(list_entries(descriptor, budget.most)):
                        if not entry.is_dir(follow_symlinks=False):
                            names[device, entry.inode()] += 1
                        elif len(parts) < MAX_DEPTH:
                            waiting.append((*parts, entry.name))
        return names
