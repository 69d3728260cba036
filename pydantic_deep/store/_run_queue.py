"""`RunQueue`: the turns that workers run, and the events of their runs, for all processes that open a store."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import Final

from pydantic_deep._checks import check_key, check_keys, check_page, check_seconds

from ._exclusive import Orphans, no_orphans, write_unless_busy
from .engine import Engine
from .errors import QueueLimitError
from .operations import _queue
from .records import LoggedEntries, QueuedRunRecord, RunProgress, now
from .sql._commit_rows import check_texts
from .sql.dialect import SQLITE, SupportsTables

_PAGE: Final = 200
"""Maximum number of parts of a log per query."""


class RunQueue:
    """The queue of a store: `SqlStore.queue`.

    A run is queued until a worker claims it, and ends when its run has an end in the store. A claim belongs to the open
    store of a worker, whose liveness is determined by its lock and never by a clock.
    """

    def __init__(self, engine: Engine, orphans: Orphans = no_orphans) -> None:
        self._engine = engine
        self._orphans = orphans
        self._dialect = engine.dialect if isinstance(engine, SupportsTables) else SQLITE

    @property
    def is_shared(self) -> bool:
        """Whether other stores can have the same database open: not with `memory:`, which has no name."""
        return self._engine.url != 'memory:'

    @cached_property
    def node(self) -> str:
        """The name of this process, for people: `host:pid`."""
        return f'{socket.gethostname()}:{os.getpid()}'

    async def time(self) -> int:
        """Return the time in microseconds since 1970, by the clock that all processes of the store have: that of
        PostgreSQL, otherwise that of the machine.
        """
        clock = self._dialect.clock
        return await self._engine.read(partial(_queue.time, clock)) if clock else now()

    async def add(
        self,
        run: QueuedRunRecord,
        *,
        max_active: int | None = None,
        max_of_key: int | None = None,
        exclusive: bool = False,
    ) -> None:
        """Add a run.

        Args:
            run: The run, in state `queued`.
            max_active: The maximum number of runs of the store that have not ended.
            max_of_key: The maximum number of those of the same key.
            exclusive: Whether to refuse the run while another one that starts from its version is active.

        Raises:
            QueueLimitError: A maximum is reached.
            VersionBusyError: The run is `exclusive`, and another one is active.
            VersionNotFoundError: The run is `exclusive`, and its version does not exist any more.
            ValueError: The queue has a run of this id.
        """
        check_texts((run.agent_name, run.account, run.key_id, run.options))
        reached = await write_unless_busy(
            lambda orphans: self._engine.write(
                partial(_queue.add, run, max_active, max_of_key, exclusive=exclusive, orphans=orphans)
            ),
            self._orphans,
        )
        if reached is not None:
            raise QueueLimitError(*reached)

    async def check_limits(
        self, key_id: str | None, *, max_active: int | None = None, max_of_key: int | None = None
    ) -> None:
        """Check that a run could be added now.

        Args:
            key_id: The key of the run.
            max_active: As for `add`.
            max_of_key: As for `add`.

        Raises:
            QueueLimitError: A maximum is reached.
        """
        reached = await self._engine.read(partial(_queue.reached_limit, key_id, max_active, max_of_key))
        if reached is not None:
            raise QueueLimitError(*reached)

    async def get(self, run_id: str) -> QueuedRunRecord | None:
        """Return a run; `None` if it was never queued, or ended long ago."""
        check_key('run_id', run_id)
        return next(iter(await self.get_all([run_id])), None)

    async def get_all(self, run_ids: Collection[str]) -> list[QueuedRunRecord]:
        """Return the existing runs among these, in any order."""
        return await self._engine.read(partial(_queue.get, run_ids))

    async def progress(self, run_ids: Collection[str]) -> Sequence[RunProgress]:
        """Return how far the existing runs among these are, in any order."""
        return await self._engine.read(partial(_queue.progress, run_ids))

    async def list(
        self,
        *,
        account: str | None = None,
        conversation_id: str | None = None,
        worker: str | None = None,
        ended: bool = False,
        limit: int = 1000,
    ) -> list[QueuedRunRecord]:
        """Return runs of all processes, newest first.

        Args:
            account: Only those of one account.
            conversation_id: Only those of one conversation.
            worker: Only those that one open store has claimed.
            ended: Whether to include runs that ended recently.
            limit: The maximum number of runs.
        """
        check_page(limit=limit)
        check_keys(account=account, conversation_id=conversation_id, worker=worker)
        return await self._engine.read(partial(_queue.find, account, conversation_id, worker, limit, ended=ended))

    async def dead_workers(self) -> Sequence[str]:
        """Return the workers that have claimed runs and do not hold their lock in the store."""
        workers = await self._engine.read(_queue.workers)
        living = await self._engine.living_owners(workers) if workers else set[str]()
        return [worker for worker in workers if worker not in living]

    async def ready(
        self,
        agent_names: Collection[str],
        *,
        workers: Collection[str] = (),
        limit: int = 100,
        only_cancelled: bool = False,
    ) -> Sequence[QueuedRunRecord]:
        """Return runs that can begin or resume now: those with the highest priority first, then the oldest.

        Args:
            agent_names: Only those of these agents.
            workers: Dead workers whose claimed runs are included.
            limit: The maximum number of runs.
            only_cancelled: Whether only those are returned that somebody requested to cancel.
        """
        check_page(limit=limit)
        ready = partial(_queue.ready, sorted(agent_names), sorted(workers), limit, only_cancelled=only_cancelled)
        return await self._engine.read(ready)

    async def claim(self, run_id: str) -> QueuedRunRecord | None:
        """Claim a run for this open store; return `None` if it has ended, cannot begin yet, or is alive elsewhere."""
        run = await self.get(run_id)
        if run is None or run.state == 'ended':
            return None
        if run.worker is not None and await self._engine.living_owners([run.worker]):
            return None
        claim = partial(_queue.claim, run_id, run.worker, self._engine.owner, self.node, now())
        return await self._engine.write(claim)

    async def release(self, run_id: str, *, problem: str | None = None) -> None:
        """Return a run that this open store has claimed to the queue.

        Args:
            run_id: The run.
            problem: Why it cannot run here, for people.
        """
        await self._engine.write(partial(_queue.release, run_id, self._engine.owner, problem))

    async def explain(self, run_id: str, problem: str) -> None:
        """Record, for people, why a queued run cannot begin."""
        await self._engine.write(partial(_queue.explain, run_id, problem))

    async def end(self, run_id: str, *, problem: str | None = None) -> bool:
        """End a run that this open store has claimed; return whether it was.

        Args:
            run_id: The run.
            problem: Why it never began, for people.
        """
        return await self._engine.write(partial(_queue.end, run_id, self._engine.owner, problem, await self.time()))

    async def request_cancel(self, run_id: str) -> QueuedRunRecord | None:
        """Request to cancel a run, durably, and return its record; `None` if it was not queued.

        A queued run that never began ends at once. The process that executes another, queued or not, reads the request
        with `cancelled`. The request has no effect on a run that has ended.
        """
        check_key('run_id', run_id)
        return await self._engine.write(partial(_queue.request_cancel, run_id, await self.time()))

    async def cancelled(self) -> list[str]:
        """Return the runs of this open store that somebody requested to cancel, queued or not. If such a run continues a
        crashed one, that one is returned, too.
        """
        return await self._engine.read(partial(_queue.cancelled, self._engine.owner))

    async def cancelled_among(self, run_ids: Collection[str]) -> set[str]:
        """Return those of these running runs, of any process, that somebody requested to cancel, and that were not
        queued. If their process has crashed, they are to be ended instead of resumed.
        """
        return await self._engine.read(partial(_queue.cancelled_among, run_ids))

    async def beat(self) -> None:
        """Report, for people, that the runs of this open store are alive."""
        await self._engine.write(partial(_queue.beat, self._engine.owner, now()))

    async def append(self, run: QueuedRunRecord, after: int, entries: Sequence[bytes]) -> bool:
        """Append encoded events to the log of a claimed run; return `False` if another worker has claimed it since.

        The log is for clients that follow the run now. A crash of the database may lose its end: steps and versions
        never depend on it.

        Args:
            run: The claim.
            after: The number of entries that the log has.
            entries: The entries.
        """
        append = partial(_queue.append, run.run_id, run.epoch, after, entries, self._dialect)
        return await self._engine.write_unsynced(append)

    async def entries(self, run_id: str, epoch: int, *, after: int = 0) -> Sequence[LoggedEntries]:
        """Return the next entries of a log in parts, of which the first may begin before `after`; empty at the end."""
        return await self._engine.read(partial(_queue.entries, run_id, epoch, after, _PAGE))

    async def prune(self, older_than_seconds: float) -> int:
        """Remove the records and logs of runs that ended longer ago, at most 1,000; return how many were removed."""
        check_seconds('older_than_seconds', older_than_seconds)
        before = await self.time() - int(older_than_seconds * 1_000_000)
        return await self._engine.write(partial(_queue.prune, before, 1000))

    async def measures(self) -> dict[_queue.Measure, int]:
        """Return the number of `queued` and of `running` runs, and `oldest_queued_at`, 0 if no run is queued."""
        return await self._engine.read(_queue.measures)
