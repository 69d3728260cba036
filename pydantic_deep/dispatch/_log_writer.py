"""`LogWriter`: writes the events of a run into its log in the store, for clients of other processes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from pydantic_deep.store import QueuedRunRecord, RunQueue, StoreError, StoreUnavailableError
from pydantic_deep.streaming import EntryEncoder, StreamEvent

_LOGGER = logging.getLogger('pydantic_deep')

FLUSH_SECONDS = 0.02
"""Minimum time between two writes. Events that occur meanwhile are written together."""

RETRY_SECONDS = 0.5
"""Time until a store that is unavailable is tried again."""

KEEP_SECONDS = 5.0
"""How long written entries are kept. Appends are acknowledged before they are on disk, and PostgreSQL writes them to disk
within 0.6 seconds by default. A database that crashes before has lost them, and they are written again.
"""


class LogWriter:
    """The log of one claim of a run. Events are appended without waiting, and written in order by a task.

    A store that is unavailable is waited for: the run itself notices it at its next commit. A store that crashed may have
    lost the last entries, which are written again: other processes may have read them.
    """

    def __init__(self, queue: RunQueue, run: QueuedRunRecord) -> None:
        self._queue = queue
        self._run = run
        self._encoder = EntryEncoder()
        self._pending: list[bytes] = []
        self._written = 0
        self._kept: deque[tuple[float, list[bytes]]] = deque()
        """The entries written last, with the time."""
        self._changed = anyio.Event()
        self._is_closed = False
        self._is_over = False

    def emit(self, event: StreamEvent) -> None:
        """Append an event."""
        if self._is_over:
            return
        self._pending += self._encoder.encode(event)
        self._changed.set()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Write appended events; on exit, write the rest."""
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._write_all)
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised below, outside of the group, which would wrap it
                failure = error
            finally:
                self._is_closed = True
                self._changed.set()
        if failure is not None:
            raise failure

    async def _write_all(self) -> None:
        with anyio.CancelScope(shield=True):  # the end of a cancelled run is written too
            while not self._is_closed or self._pending:
                if not self._pending:
                    await self._changed.wait()
                    self._changed = anyio.Event()
                elif not await self._write():
                    self._is_over = True
                    self._pending.clear()
                    return
                elif not self._is_closed:
                    await anyio.sleep(FLUSH_SECONDS)

    async def _write(self) -> bool:
        """Write the pending entries; return `False` if nobody needs them any more."""
        entries = self._pending[:]
        try:
            if await self._queue.append(self._run, self._written, entries):
                written = len(entries)
            else:  # another worker has claimed the run, or the result of a write was lost
                known = await self._queue.get(self._run.run_id)
                if known is None or known.epoch != self._run.epoch:
                    return False
                written = known.position - self._written
                if written < 0:
                    return self._restore(-written)
        except StoreUnavailableError as error:
            if self._is_closed:
                _LOGGER.warning('The last events of the run %s could not be written: %s', self._run.run_id, error)
                return False
            await anyio.sleep(RETRY_SECONDS)
            return True
        except StoreError as error:  # the run itself notices that the store was closed
            _LOGGER.warning('The events of the run %s could not be written: %s', self._run.run_id, error)
            return False
        del self._pending[:written]
        self._written += written
        self._keep(entries[:written])
        return True

    def _keep(self, written: list[bytes]) -> None:
        now = anyio.current_time()
        self._kept.append((now, written))
        while self._kept and self._kept[0][0] <= now - KEEP_SECONDS:
            self._kept.popleft()

    def _restore(self, count: int) -> bool:
        """Write the last `count` entries again; return `False` if they are not kept any more."""
        kept = [entry for _, entries in self._kept for entry in entries]
        if count > len(kept):
            _LOGGER.warning('The store has lost %d events of the run %s', count, self._run.run_id)
            return False
        self._kept.clear()
        self._pending[:0] = kept[len(kept) - count :]
        self._written -= count
        return True
