"""The events of a stored run, rebuilt from its messages.

They are used for runs of other processes, and for runs with a removed log.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
from pydantic_ai.messages import ModelMessage

from pydantic_deep.server._agents import ServedAgent
from pydantic_deep.store import BranchRecord, VersionFilter, VersionRecord
from pydantic_deep.streaming import StartEvent, StreamEvent, project_messages

from ._pool import RunPool
from ._stored_runs import StoredRun, load_run

_ALL = 1_000_000
"""An upper bound for the number of versions of a run, one per step."""


async def stored_run_events(agent: ServedAgent, run: StoredRun) -> list[StreamEvent]:
    """Return the events of a run, rebuilt from its messages; for a running one, those of its steps so far.

    Later calls return the same events, followed by new ones.
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


async def follow_stored_run(
    pool: RunPool, agent: ServedAgent, run: StoredRun, *, after: int, poll_seconds: float
) -> AsyncGenerator[list[tuple[int, StreamEvent]]]:
    """Yield the events of a run, numbered from 1, until it has ended. A poll without new events yields an empty list.

    Args:
        pool: The runs of this process.
        agent: The agent of the run.
        run: The run as last loaded.
        after: The number of the last event that the client has read; 0 to read all.
        poll_seconds: The interval between queries of the store.
    """
    sent = after
    while True:
        events = await stored_run_events(agent, run)
        yield list(enumerate(events[sent:], sent + 1))
        sent = max(sent, len(events))
        if run.is_over:
            return
        await anyio.sleep(poll_seconds)
        run = await load_run(agent.store, pool, run.id) or run


async def _messages(agent: ServedAgent, run: StoredRun) -> tuple[list[ModelMessage], int]:
    """Return the last message before a run and the messages of the run, and the number of messages before it.

    Messages that a summary replaced are read from earlier steps, because their events were already sent.
    """
    records: list[VersionRecord] = []
    for attempt in run.attempts:
        records += reversed(await agent.store.versions(VersionFilter(run_id=attempt.id), limit=_ALL))
    base = None if run.base_id is None else await agent.store.version(run.base_id)
    branches = {branch.id: branch for branch in await agent.store.branches(run.last.conversation_id)}
    before = await _messages_from(agent, base, (base.message_count if base else 0) - 1) if base else []
    messages = list(before)
    for record in records:
        messages += await _new_messages(agent, base, record, branches)
        base = record
    return messages, len(before)


async def _new_messages(
    agent: ServedAgent, before: VersionRecord | None, after: VersionRecord, branches: dict[str, BranchRecord]
) -> list[ModelMessage]:
    """Return the messages that a version adds to the previous one."""
    known = 0 if before is None else before.message_count
    if before is None or before.branch_id == after.branch_id or branches[after.branch_id].fork_seq >= known:
        return await _messages_from(agent, after, known)
    shared = branches[after.branch_id].fork_seq
    old, new = await _messages_from(agent, before, shared), await _messages_from(agent, after, shared)
    last = max((place for place, message in enumerate(new) if message in old), default=-1)
    return new[last + 1 :]


async def _messages_from(agent: ServedAgent, record: VersionRecord, start: int) -> list[ModelMessage]:
    return await (await agent.load(record.id)).messages(start=max(0, start))
