"""The events of a stored run, rebuilt from its messages.

They are used for runs of other processes, and for runs with a removed log.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from pydantic_deep.dispatch import load_run_messages
from pydantic_deep.server._agents import ServedAgent
from pydantic_deep.streaming import StartEvent, StreamEvent, project_messages

from ._pool import RunPool
from ._stored_runs import StoredRun, load_run


async def stored_run_events(agent: ServedAgent, run: StoredRun) -> list[StreamEvent]:
    """Return the events of a run, rebuilt from its messages; for a running one, those of its steps so far.

    Later calls return the same events, followed by new ones.
    """
    start = StartEvent(id=run.id, model=run.last.agent_name, conversation_id=run.last.conversation_id)
    messages, since = await load_run_messages(agent, run.attempts)
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
    """Yield the events of a run, numbered from 1, until it has ended or the server stops. A poll without new events yields an empty list.

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
        await pool.pause(poll_seconds)
        if pool.is_stopped:
            return
        run = await load_run(agent.store, pool, run.id) or run
