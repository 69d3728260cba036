"""The limits of one call that scans a whole directory: entries and time, shared by all of its parts.

Snapshots, restores, captures and scans for protected files raise an error at a limit, unlike a search, which returns a
partial result: in a tree, missing files would count as removed. Depth is limited by the maximum path length, which
`ScanLimitError` reports too.
"""

from __future__ import annotations

from collections.abc import Generator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar

from .errors import ScanLimitError

MAX_SCAN_ENTRIES = 2_000_000
"""Maximum number of files and directories that one call scans."""

MAX_SCAN_SECONDS = 600
"""Maximum duration of one call, in seconds."""

CAPTURE_ADVICE = 'List unneeded files in a `.gitignore`, or use a smaller directory.'
"""How to avoid the limits of a capture."""

SizedT = TypeVar('SizedT', bound=Sized)


class ScanBudget:
    """The remaining entries and time of a call.

    Args:
        advice: The advice in the error when a limit is reached.
    """

    def __init__(self, advice: str) -> None:
        self._advice = advice
        self._entries_left = MAX_SCAN_ENTRIES
        self._until = monotonic() + MAX_SCAN_SECONDS

    @property
    def most(self) -> int:
        """Number of entries of a directory worth listing: one more than remain."""
        return self._entries_left + 1

    def take(self, entries: SizedT) -> SizedT:
        """Count entries and return them.

        Raises:
            ScanLimitError: There are more entries than remain, or the time is up.
        """
        self._entries_left -= len(entries)
        if self._entries_left < 0:
            raise ScanLimitError('entries', MAX_SCAN_ENTRIES, self._advice)
        self.check_time()
        return entries

    def check_time(self) -> None:
        """Raise `ScanLimitError` if the time is up."""
        if monotonic() > self._until:
            raise ScanLimitError('seconds', MAX_SCAN_SECONDS, self._advice)


_CURRENT: ContextVar[ScanBudget | None] = ContextVar('scan_budget', default=None)
"""The budget of the current call. A composite calls its parts through methods that have no parameter for it."""


def check_size(tree: Sized) -> None:
    """Raise `ScanLimitError` if a tree to restore has too many files."""
    if len(tree) > MAX_SCAN_ENTRIES:
        raise ScanLimitError('entries', MAX_SCAN_ENTRIES, 'Restore a smaller tree.')


@contextmanager
def scan_budget(advice: str = 'Use a smaller directory.') -> Generator[ScanBudget]:
    """Yield the budget of the current call, or a new one for the outermost call."""
    current = _CURRENT.get()
    if current is not None:
        yield current
        return
    budget = ScanBudget(advice)
    token = _CURRENT.set(budget)
    try:
        yield budget
    finally:
        _CURRENT.reset(token)
