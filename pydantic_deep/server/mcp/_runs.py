"""Waiting for a run, with progress, and the run as a result of a tool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import anyio

from pydantic_deep.server.access._ownership import Access, AuthorizedRun
from pydantic_deep.server.runs._run_log import LogDiscardedError
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.server.schemas._approvals import pending_call
from pydantic_deep.server.schemas._runs import build_run
from pydantic_deep.streaming import EventGroup, ToolCallEvent, decode_entry
from pydantic_deep.views import Run

from ._shapes import RunResult

Report: TypeAlias = Callable[[str], Awaitable[None]]
"""Sends progress with a message."""

POLL_SECONDS = 0.5
"""The interval in which the store is read for a run that this process has no log of."""

HOW_TO_ANSWER = 'in a form that `get_run` shows, on the page of the server, or with `pydantic-deep approvals`'
"""Where people answer approvals."""

_ACTIVE = ('queued', 'running')


async def wait_for_run(access: Access, run_id: str, *, seconds: float, report: Report | None) -> Run:
    """Wait until a run of the caller has ended, or for a time, or until the server stops, and return it.

    Args:
        access: The access of the caller.
        run_id: The run.
        seconds: The maximum time. The run continues after it.
        report: Receives the tool calls of the run; `None` if the client has not asked for progress.

    Raises:
        ServerError: The caller owns no run with that id.
    """
    own = await access.run(run_id)
    with suppress(TimeoutError):
        with anyio.fail_after(seconds):
            if own.local is None:
                await _poll(access, own)
            else:
                await _wait(own.local, report, access.state.settings.keepalive_seconds)
    return await build_run(access.state, await access.run(run_id))


async def _poll(access: Access, own: AuthorizedRun) -> None:
    while (await build_run(access.state, own)).state in _ACTIVE and not access.state.runs.is_stopped:
        await access.state.runs.pause(POLL_SECONDS)
        own = await access.run(own.id)


async def _wait(run: ServerRun, report: Report | None, keepalive_seconds: float) -> None:
    async with anyio.create_task_group() as group:
        if report is not None:
            group.start_soon(_report_calls, run, report, keepalive_seconds)
        await run.wait()  # the log is closed then


async def _report_calls(run: ServerRun, report: Report, keepalive_seconds: float) -> None:
    """Report each tool call, and that the run is alive while there is none."""
    message = 'The run has started.'
    with suppress(LogDiscardedError):  # another process continues the run from its beginning
        async for batch in run.log.batches(idle_seconds=keepalive_seconds):
            events = [decode_entry(entry) for _, entry in batch if entry[0] == EventGroup.function_calls]
            calls = [' > '.join((*event.path, event.name)) for event in events if isinstance(event, ToolCallEvent)]
            news = calls if batch else [message]
            for message in news:
                await report(message)


def run_result(access: Access, run: Run) -> RunResult:
    """Return a run as the result of a tool."""
    pending = [pending_call(approval) for approval in run.approvals if approval.status == 'pending']
    return RunResult(
        run=run.id,
        conversation=run.conversation_id,
        agent=run.agent,
        state=run.state,
        version=run.version_id,
        output=run.output,
        error=run.problem if run.error is None else run.error.message,
        approvals=pending,
        next=_next(access, run, has_pending=bool(pending)),
    )


def _next(access: Access, run: Run, *, has_pending: bool) -> str | None:
    match run.state:
        case 'queued' | 'running':
            return 'The run continues. Wait for it with `get_run`.'
        case 'suspended' if run.has_moved_on:
            return (
                'The process of the run ended, and the conversation has moved on without it. Continue it with '
                '`resume_run`, or end it with `cancel_run`.'
            )
        case 'suspended':
            return 'The run has no end in the store. Continue it with `resume_run`, or end it with `cancel_run`.'
        case 'awaiting_approval' if not has_pending:
            return 'The approvals are answered. If no other run has resumed the turn, call `resume_run`.'
        case 'awaiting_approval' if access.has('approve') and access.state.settings.mcp_answers:
            return 'Ask the user about each call in `approvals`, then call `answer_approval`.'
        case 'awaiting_approval' if not access.has('approve'):
            return (
                'A person must answer the approvals, with a key that has the scope `approve`. Then call `resume_run`.'
            )
        case 'awaiting_approval':
            return f'The user must answer the approvals: {HOW_TO_ANSWER}. Then call `resume_run`.'
        case _:
            return None
