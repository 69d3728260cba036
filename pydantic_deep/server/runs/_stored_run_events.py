"""What a run has told, made again from the store: of a run of another process, or one whose log was forgotten."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

import anyio
from pydantic_ai.messages import ModelMessage

from pydantic_deep.server._state import ServedAgent, ServerState
from pydantic_deep.store import BranchRecord, RunRecord, VersionFilter, VersionRecord
from pydantic_deep.streaming import ErrorEvent, StartEvent, StreamEvent
from pydantic_deep.streaming._failures import suspended_event
from pydantic_deep.streaming._project import project_messages
from pydantic_deep.versions._turn import ALL_RUNS
from pydantic_deep.versions.recovery._suspended_runs import has_moved_on

from ._server_run import ServedRunState

_ALL = 1_000_000
"""As many versions as a run can have, each of which is a step, and as many runs as there can be."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as the store has it: the attempt that began it, and those that went on with it after a crash."""

    id: str
    """The id that was asked for, of any of the attempts."""
    attempts: Sequence[RunRecord]
    """At least one, oldest first."""
    version: VersionRecord | None
    """The newest version of them; `None` before the first step."""
    is_suspended: bool = False
    """Whether it has no end in the store and nothing works on it."""
    has_moved_on: bool = False
    """Whether it is suspended and its conversation has moved on."""

    @property
    def last(self) -> RunRecord:
        """The newest attempt."""
        return self.attempts[-1]

    @property
    def state(self) -> ServedRunState:
        """What became of it."""
        return 'suspended' if self.is_suspended else self.last.state

    @property
    def base_id(self) -> str | None:
        """The version that it went on from."""
        return self.attempts[0].base_id

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state != 'running'

    @property
    def error(self) -> ErrorEvent | None:
        """Why it failed. What an error said may be of the inside of the application: its type has to do."""
        if self.is_suspended:
            return suspended_event()
        if self.last.error is None:
            return None
        if self.last.state == 'interrupted':
            return ErrorEvent(kind='cancelled', message='The run was cancelled. What was done stays done.')
        name = str(json.loads(self.last.error)['type'])
        return ErrorEvent(kind='run_failed', message=f'The run failed with {name}.', status=500)


async def load_run(state: ServerState, id: str) -> StoredRun | None:
    """Return a run with all attempts at it; `None` if there is none."""
    store = state.store
    found = await store.run(id)
    if found is None:
        return None
    attempts = [found]
    while attempts[0].attempt_of is not None and (before := await store.run(attempts[0].attempt_of)) is not None:
        attempts.insert(0, before)
    if found.state == 'interrupted':  # nobody goes on with another
        later = {run.attempt_of: run for run in await store.runs(conversation_id=found.conversation_id, limit=_ALL)}
        while (after := later.get(attempts[-1].id)) is not None:
            attempts.append(after)
    moved_on = (await _suspended(state, attempts[-1:])).get(attempts[-1].id)
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


async def working_in(state: ServerState, conversation_id: str) -> list[RunRecord]:
    """Return the runs that work in a conversation as the store has it, or will when recovery comes to them."""
    runs = await state.store.runs(conversation_id=conversation_id, states=['running'])
    suspended = await _suspended(state, runs)
    return [run for run in runs if run.id not in suspended]


async def suspended_in(state: ServerState, conversation_id: str) -> list[RunRecord]:
    """Return the suspended runs of a conversation, oldest first."""
    runs = await state.store.runs(conversation_id=conversation_id, states=['running'])
    suspended = await _suspended(state, runs)
    return [run for run in reversed(runs) if run.id in suspended]


async def _suspended(state: ServerState, runs: Sequence[RunRecord]) -> dict[str, bool]:
    """Return which of these runs are suspended, each with whether its conversation has moved on.

    While a server recovers after its start, a run that it is about to resume counts as one that works.
    """
    store, hub = state.store, state.hub
    running = {run.id for run in runs if run.state == 'running' and run.id not in hub.resuming}
    orphans = await store.orphans(ALL_RUNS) if running else []
    found: dict[str, bool] = {}
    for run in orphans:
        if run.id in running:
            moved_on = await has_moved_on(store, run)
            if moved_on or run.owner == store.owner or not hub.is_recovering:
                found[run.id] = moved_on
    return found


async def project_run(agent: ServedAgent, run: StoredRun) -> list[StreamEvent]:
    """Return what a run has told: of one that goes on, what its steps have told so far.

    What comes later is appended, and what was returned keeps its place.
    """
    start = StartEvent(id=run.id, model=run.last.agent_name, conversation_id=run.last.conversation_id)
    messages, since = await _messages(agent, run)
    status = None if run.state == 'running' else run.state
    if run.version is None:
        return project_messages(messages, since=since, start=start, status=status, error=run.error)
    version = await agent.load(run.version.id)
    output = version.deferred_tool_requests if version.state == 'awaiting_approval' else version.output
    return project_messages(
        messages,
        since=since,
        start=start,
        status=status,
        output=output if run.is_over else None,
        error=run.error,
        version_id=version.id,
    )


async def follow_run(
    state: ServerState, agent: ServedAgent, run: StoredRun, *, after: int, poll_seconds: float
) -> AsyncGenerator[list[tuple[int, StreamEvent]]]:
    """Yield what a run tells, numbered from 1, until it has ended; an empty list where there is nothing new.

    Args:
        state: The server.
        agent: The agent.
        run: The run as it is.
        after: The number of the event to go on after; 0 for all.
        poll_seconds: How long to wait before the store is asked again.
    """
    told = after
    while True:
        events = await project_run(agent, run)
        yield list(enumerate(events[told:], told + 1))
        told = max(told, len(events))
        if run.is_over:
            return
        await anyio.sleep(poll_seconds)
        run = await load_run(state, run.id) or run


async def _messages(agent: ServedAgent, run: StoredRun) -> tuple[list[ModelMessage], int]:
    """Return the messages of a run after the last one before it, and how many are before it.

    Where a summary replaced messages, those that it replaced are taken from the steps before: they were told.
    """
    records: list[VersionRecord] = []
    for attempt in run.attempts:
        records += reversed(await agent.store.versions(VersionFilter(run_id=attempt.id), limit=_ALL))
    base = None if run.base_id is None else await agent.store.version(run.base_id)
    branches = {branch.id: branch for branch in await agent.store.branches(run.last.conversation_id)}
    before = await _of(agent, base, (base.message_count if base else 0) - 1) if base else []
    messages = list(before)
    for record in records:
        messages += await _new(agent, base, record, branches)
        base = record
    return messages, len(before)


async def _new(
    agent: ServedAgent, before: VersionRecord | None, after: VersionRecord, branches: dict[str, BranchRecord]
) -> list[ModelMessage]:
    """Return the messages that a version has and the one before has not."""
    known = 0 if before is None else before.message_count
    if before is None or before.branch_id == after.branch_id or branches[after.branch_id].fork_seq >= known:
        return await _of(agent, after, known)
    shared = branches[after.branch_id].fork_seq
    old, new = await _of(agent, before, shared), await _of(agent, after, shared)
    last = max((place for place, message in enumerate(new) if message in old), default=-1)
    return new[last + 1 :]


async def _of(agent: ServedAgent, record: VersionRecord, start: int) -> list[ModelMessage]:
    return await (await agent.load(record.id)).messages(start=max(0, start))
