"""How much one call that goes through a whole directory may take: entries and time, for all of its parts together.

Snapshots, restores, captures and scans for protected files raise where a search returns a part: a tree that lacks
files says that they were removed. How deep they go is bounded by the longest path, which `ScanLimitError` names too.
"""

from __future__ import annotations

from collections.abc import Generator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar

from .errors import ScanLimitError

MAX_SCAN_ENTRIES = 2_000_000
"""The most files and directories that one call goes through."""

MAX_SCAN_SECONDS = 600
"""How long one call goes on, in seconds."""

CAPTURE_ADVICE = 'Name what no version needs in a `.gitignore`, or use a smaller directory.'
"""What to do when a capture meets a limit."""

SizedT = TypeVar('SizedT', bound=Sized)


class ScanBudget:
    """What is left of both limits.

    Args:
        advice: What to do when one is met.
    """

    def __init__(self, advice: str) -> None:
        self._advice = advice
        self._entries_left = MAX_SCAN_ENTRIES
        self._until = monotonic() + MAX_SCAN_SECONDS

    @property
    def most(self) -> int:
        """How many entries of a directory are worth listing: one more than are left."""
        return self._entries_left + 1

    def take(self, entries: SizedT) -> SizedT:
        """Count entries and return them.

        Raises:
            ScanLimitError: There are more than are left, or the time is over.
        """
        self._entries_left -= len(entries)
        if self._entries_left < 0:
            raise ScanLimitError('entries', MAX_SCAN_ENTRIES, self._advice)
        self.check_time()
        return entries

    def check_time(self) -> None:
        """Raise `ScanLimitError` if the time is over."""
        if monotonic() > self._until:
            raise ScanLimitError('seconds', MAX_SCAN_SECONDS, self._advice)


_CURRENT: ContextVar[ScanBudget | None] = ContextVar('scan_budget', default=None)
"""The budget of the call that is under way: a composite asks its parts by methods that have no parameter for it."""


def check_size(tree: Sized) -> None:
    """Raise `ScanLimitError` if a tree that is to be restored has too many files."""
    if len(tree) > MAX_SCAN_ENTRIES:
        raise ScanLimitError('entries', MAX_SCAN_ENTRIES, 'Restore a smaller tree.')


@contextmanager
def scan_budget(advice: str = 'Use a smaller directory.') -> Generator[ScanBudget]:
    """Yield the budget of the call that is under way, or a new one if none is."""
    current = _CURRENT.get()
    if current is not None:
        yield current
        return
    begun = ScanBudget(advice)
    token = _CURRENT.set(begun)
    try:
        yield begun
    finally:
        _CURRENT.reset(token)
