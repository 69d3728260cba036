"""`StoredRun`: a run in the store, with the state that results from all its attempts.

Defined elsewhere: the runs of this process (`_pool`), and the events of a stored run (`_stored_run_events`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pydantic_deep.dispatch import load_attempts
from pydantic_deep.store import (
    QueuedRunRecord,
    RunQueue,
    RunRecord,
    SqlStore,
    Store,
    VersionFilter,
    VersionRecord,
)
from pydantic_deep.streaming import ErrorEvent, RunStatus, load_failure, suspended_event
from pydantic_deep.versions import has_moved_on

from ._pool import RunPool
from ._server_run import ServerRun

_ALL = 1_000_000
"""An upper bound for the number of runs of a store or a conversation."""

_FINAL: Final = frozenset({'complete', 'failed', 'awaiting_approval'})
"""The states of attempts that no other attempt follows."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run with all its attempts: the first one, and another after each crash."""

    id: str
    """The id of any of the attempts, as requested."""
    attempts: Sequence[RunRecord]
    """The attempts, oldest first. There is at least one."""
    version: VersionRecord | None
    """The newest version of the run; `None` before the first step."""
    is_suspended: bool = False
    """Whether the run has no end in the store, and no process executes it."""
    has_moved_on: bool = False
    """Whether the run is suspended and its conversation has moved on."""

    @property
    def last(self) -> RunRecord:
        """The newest attempt of the run."""
        return self.attempts[-1]

    @property
    def state(self) -> RunStatus | Literal['running']:
        """The state of the newest attempt, or `suspended`."""
        return 'suspended' if self.is_suspended else self.last.state

    @property
    def base_id(self) -> str | None:
        """The version that the run started from."""
        return self.attempts[0].base_id

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.state != 'running'

    @property
    def error(self) -> ErrorEvent | None:
        """The error of a failed run, as its events had it: without messages that may reveal internals."""
        if self.is_suspended:
            return suspended_event()
        if self.last.error is None:
            return None
        return load_failure(self.last.error)


async def load_run(store: Store, pool: RunPool, id: str) -> StoredRun | None:
    """Load a run with all its attempts, or `None` if it does not exist."""
    attempts = await load_attempts(store, id)
    if not attempts:
        return None
    moved_on = (await _suspended(store, pool, attempts[-1:])).get(attempts[-1].id)
    run = StoredRun(
        id=id,
        attempts=attempts,
        version=None,
        is_suspended=moved_on is not None,
        has_moved_on=bool(moved_on),
    )
    for attempt in reversed(attempts):
        newest = await store.versions(VersionFilter(run_id=attempt.id), limit=1)
        if newest:
            return replace(run, version=newest[0])
    return run


async def active_run_ids(store: SqlStore, pool: RunPool, conversation_id: str) -> set[str]:
    """Return the ids of the active runs of a conversation: those of this process, queued ones, and those of workers.

    The store decides whether a run has ended: its task or its mirror notices it later.
    """
    here = [run for run in pool.runs_in(conversation_id) if not run.is_mirrored]
    active = {run.id for run in here if not await has_ended(store, run)}
    return active | {run.run_id for run in await active_queued_runs(store, conversation_id)}


async def active_queued_runs(store: SqlStore, conversation_id: str) -> list[QueuedRunRecord]:
    """Return the queued runs of a conversation that have not ended, newest first."""
    queued = await store.queue.list(conversation_id=conversation_id)
    return [run for run in queued if not is_final(await _last_attempt(store, run.run_id), run)]


async def has_ended(store: SqlStore, run: ServerRun) -> bool:
    """Return whether the store has the end of a run that is active here."""
    queued = await store.queue.get(run.id) if run.is_mirrored else None
    return is_final(await _last_attempt(store, run.id), queued)


async def _last_attempt(store: SqlStore, run_id: str) -> RunRecord | None:
    attempts = await load_attempts(store, run_id)
    return attempts[-1] if attempts else None


def is_final(last: RunRecord | None, queued: QueuedRunRecord | None) -> bool:
    """Return whether a run has ended, and no attempt follows.

    Args:
        last: The newest attempt; `None` if the run has not begun.
        queued: The record of a queued run, which ends after the attempt.
    """
    if queued is not None and queued.state != 'ended':
        return last is not None and last.state in _FINAL
    return queued is not None if last is None else last.state != 'running'


async def load_running_runs(store: Store, pool: RunPool, conversation_id: str) -> list[RunRecord]:
    """Return the running runs of a conversation, newest first, including those that recovery is about to resume."""
    runs = await store.runs(conversation_id=conversation_id, states=['running'])
    suspended = await _suspended(store, pool, runs)
    return [run for run in runs if run.id not in suspended]


async def load_suspended_runs(store: Store, pool: RunPool, conversation_id: str) -> list[RunRecord]:
    """Return the suspended runs of a conversation, oldest first."""
    runs = await store.runs(conversation_id=conversation_id, states=['running'])
    suspended = await _suspended(store, pool, runs)
    return [run for run in reversed(runs) if run.id in suspended]


async def _without_queued(queue: RunQueue, store: Store, orphans: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the orphans that no worker is about to continue."""
    first_by_id = {run.id: (await load_attempts(store, run.id))[0].id for run in orphans}
    queued = {run.run_id for run in await queue.get_all(set(first_by_id.values())) if run.state != 'ended'}
    return [run for run in orphans if first_by_id[run.id] not in queued]


async def _suspended(store: Store, pool: RunPool, runs: Sequence[RunRecord]) -> dict[str, bool]:
    """Return the suspended runs by id, each with whether its conversation has moved on.

    Runs that the server is about to resume, after its start or with its worker, count as running.
    """
    running = {run.id for run in runs if run.state == 'running' and run.id not in pool.resuming}
    orphans = [run for run in await store.orphans(_ALL) if run.id in running] if running else []
    if orphans and pool.queue is not None:
        orphans = await _without_queued(pool.queue, store, orphans)
    suspended: dict[str, bool] = {}
    for run in orphans:
        moved_on = await has_moved_on(store, run)
        is_resumed = pool.is_recovering and run.owner != store.owner
        if moved_on or not (is_resumed or pool.takes_over(run)):
            suspended[run.id] = moved_on
    return suspended
