"""`TurnTask`: a run, and the runs that resume its turn, as one task of A2A or MCP."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic_deep.dispatch import load_attempts
from pydantic_deep.store import VersionNotFoundError, utc_datetime
from pydantic_deep.views import Run

from ._state import ServerState
from .access._ownership import Access, AuthorizedRun
from .http._errors import not_found
from .schemas._runs import build_run

_ALL = 10_000
"""An upper bound for the number of approvals of a version."""


@dataclass(frozen=True, kw_only=True)
class TurnTask:
    """A task. Its state is that of its newest run."""

    id: str
    """The id of its first run."""
    own: AuthorizedRun
    """Its newest run."""
    run: Run
    """The newest run as a view."""
    created_at: datetime
    """When the run was queued or started from which the task was loaded: its first one, unless another was given."""

    @property
    def is_active(self) -> bool:
        """Whether the task works, now or as soon as a worker is free."""
        return self.run.state in ('queued', 'running')

    @property
    def changed_at(self) -> datetime:
        """When the task got its state."""
        return self.run.ended_at or self.run.started_at


async def load_task(
    access: Access, id: str, *, agent: str | None = None, run_id: str | None = None, follow: bool = True
) -> TurnTask:
    """Return a task of the caller, with its newest run.

    Args:
        access: The access of the caller.
        id: The id of the task.
        agent: The agent of the task; `None` for any.
        run_id: A run of the task, which is known not to be older than the newest one that the store knows.
        follow: Whether the runs that resume the turn belong to the task too.

    Raises:
        ServerError: The caller owns no run with that id, or it is of another agent.
    """
    own = await access.run(run_id or id)
    run = await build_run(access.state, own)
    if agent is not None and run.agent != agent:
        raise not_found()
    created_at = run.started_at if own.queued is None else utc_datetime(own.queued.submitted_at)
    while follow and (next_id := await _resumed_by(access.state, run)) is not None:
        own = await access.run(next_id)
        run = await build_run(access.state, own)
    return TurnTask(id=id, own=own, run=run, created_at=created_at)


async def find_first_run(state: ServerState, run_id: str) -> str:
    """Return the id of the task that a run belongs to: the first run of its turn, and of that the first attempt."""
    first_id, next_id = run_id, run_id
    while next_id is not None:
        attempts = await load_attempts(state.store, next_id)
        start = attempts[0] if attempts else await state.store.queue.get(next_id)  # no worker has begun it
        if start is None:
            break
        first_id = attempts[0].id if attempts else next_id
        next_id = await _paused_run(state, start.base_id)
    return first_id


async def changed_at(state: ServerState, run_id: str) -> datetime:
    """Return when a run got its state: its end, or else its creation."""
    attempts = await load_attempts(state.store, run_id)
    ended_at = attempts[-1].ended_at if attempts else None
    return creation_time(run_id) if ended_at is None else utc_datetime(ended_at)


def creation_time(run_id: str) -> datetime:
    """Return when a run was created: the first 48 bits of a UUIDv7 are milliseconds since 1970 (RFC 9562)."""
    return datetime.fromtimestamp(int(run_id[:13].replace('-', ''), 16) / 1000, UTC)


async def _paused_run(state: ServerState, version_id: str | None) -> str | None:
    """Return the run that paused with a version; `None` if the version is another one, or was deleted."""
    with suppress(VersionNotFoundError):
        version = None if version_id is None else await state.store.version(version_id)
        return version.run_id if version is not None and version.kind == 'pause' else None
    return None


async def _resumed_by(state: ServerState, run: Run) -> str | None:
    """Return the run that resumes a paused one."""
    if run.state != 'awaiting_approval' or run.version_id is None:
        return None
    active = state.runs.run_from(run.version_id)
    if active is not None:
        return active.id
    queued = await state.store.queue.list(conversation_id=run.conversation_id)
    started = [record.run_id for record in queued if record.base_id == run.version_id]
    if started:  # at another server, for the workers
        return started[0]
    approvals = await state.store.approvals(status=None, version_id=run.version_id, limit=_ALL)
    return next((approval.resumed_by for approval in approvals if approval.resumed_by is not None), None)
