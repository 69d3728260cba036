"""`RunLog`: an append-only log of a run, for any number of readers.

The writer never waits for readers. Defined elsewhere: the format of entries, and when a log is removed (`_log_cache`).
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import AsyncGenerator
from tempfile import SpooledTemporaryFile

import anyio

from pydantic_deep.errors import DeepAgentError

MEMORY_BYTES = 256 * 2**10
"""Default maximum size of a log in memory. A larger log is moved to a temporary file as a whole."""

BATCH_BYTES = 64 * 2**10
"""Approximate maximum size of a batch: the amount that a single write to a socket accepts."""

_OFFSET_BYTES = 8


class LogDiscardedError(DeepAgentError):
    """A log was removed while it was read. The events can be rebuilt from the store."""

    def __init__(self) -> None:
        super().__init__('The log of this run was removed. Read its events from the store.')


class RunLog:
    """Entries, numbered from 1. The creator of a log must call `discard` in the end.

    Reads and writes block, but only for access to the page cache: entries are small, and the data in the temporary file
    was written moments ago.
    """

    def __init__(self, *, memory_bytes: int = MEMORY_BYTES, epoch: str | None = None) -> None:
        """Create an empty log.

        Args:
            memory_bytes: The maximum size in memory; a larger log moves to a temporary file.
            epoch: Identifies the log among all logs of the run; by default, no other log has the same.
        """
        self.epoch = epoch or secrets.token_hex(8)
        """Identifies this log among all logs of the run. Entry numbers are valid only within one log."""
        self.successor: RunLog | None = None
        """The log that replaces this one from its beginning, after it was discarded."""
        self._memory_limit = memory_bytes
        self._file = SpooledTemporaryFile[bytes](max_size=memory_bytes)  # closed by `discard`
        self._ends = array('Q')
        self._changed: anyio.Event | None = None
        self._is_closed = False
        self._is_discarded = False

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def is_closed(self) -> bool:
        """Whether no more entries are appended."""
        return self._is_closed

    @property
    def size_bytes(self) -> int:
        """The size of the log, in memory or on disk."""
        entries = self._ends[-1] if self._ends and not self._is_discarded else 0
        return entries + len(self._ends) * _OFFSET_BYTES

    @property
    def memory_bytes(self) -> int:
        """The part of the log that is in memory."""
        return self.size_bytes if not self.is_on_disk else len(self._ends) * _OFFSET_BYTES

    @property
    def is_on_disk(self) -> bool:
        """Whether the log is in a temporary file, which uses a file descriptor."""
        return not self._is_discarded and bool(self._ends) and self._ends[-1] > self._memory_limit

    def append(self, entry: bytes) -> int:
        """Append an entry and return its number.

        Raises:
            RuntimeError: The log is closed.
        """
        if self._is_closed:
            raise RuntimeError('This log is closed: its run has ended.')
        start = self._ends[-1] if self._ends else 0
        self._file.seek(start)
        self._file.write(entry)
        self._ends.append(start + len(entry))
        self._notify()
        return len(self._ends)

    def close(self) -> None:
        """Close the log. Readers stop after the last entry."""
        self._is_closed = True
        self._notify()

    def discard(self) -> None:
        """Close the log and release its memory and file. Readers get `LogDiscardedError`."""
        self._is_discarded = self._is_closed = True
        self._file.close()
        self._notify()

    async def batches(
        self, after: int = 0, *, idle_seconds: float | None = None
    ) -> AsyncGenerator[list[tuple[int, bytes]]]:
        """Yield existing and new entries in batches, with their numbers, until the log is closed.

        Args:
            after: The number of the last entry that was read; 0 to read all.
            idle_seconds: The time without entries after which an empty list is yielded; `None` to wait forever.

        Raises:
            LogDiscardedError: The log was removed before its end was read.
        """
        at = after
        while True:
            if at < len(self._ends):
                batch = self._read(at)
                at += len(batch)
                yield batch
            elif self._is_closed:
                return
            else:
                with anyio.move_on_after(idle_seconds) as waiting:
                    await self._wait()
                if waiting.cancelled_caught:
                    yield []

    async def tail(self, after: int = 0) -> AsyncGenerator[tuple[int, bytes]]:
        """Yield single entries. See `batches`."""
        async for batch in self.batches(after):
            for numbered in batch:
                yield numbered

    def _read(self, at: int) -> list[tuple[int, bytes]]:
        """Return entries after the first `at`: at least one, and as many as fit in a batch."""
        if self._is_discarded:
            raise LogDiscardedError
        start = self._ends[at - 1] if at else 0
        stop = at + 1
        while stop < len(self._ends) and self._ends[stop] - start <= BATCH_BYTES:
            stop += 1
        self._file.seek(start)
        data = self._file.read(self._ends[stop - 1] - start)
        starts = [start, *self._ends[at : stop - 1]]
        return [
            (at + place + 1, data[begin - start : end - start])
            for place, (begin, end) in enumerate(zip(starts, self._ends[at:stop], strict=True))
        ]

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = anyio.Event()
        await self._changed.wait()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None
