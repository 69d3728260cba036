"""A turn of a user interface's thread: it begins as any other, is told in the form of the protocol, and goes on alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from starlette.responses import Response, StreamingResponse

from pydantic_deep._checks import check_names
from pydantic_deep.server._run_start import begin_run
from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._authentication import Caller, agent_for
from pydantic_deep.server.access._ownership import own_run
from pydantic_deep.server.compat._dialogue import Content, Dialogue
from pydantic_deep.server.http._errors import ServerError, not_found
from pydantic_deep.server.routes._conversations import version_in
from pydantic_deep.server.runs._event_stream import HEADERS, KEEPALIVE, Position, nothing_more, parse_position
from pydantic_deep.server.runs._pool import Rendering
from pydantic_deep.server.runs._run_log import LogForgottenError, RunLog
from pydantic_deep.server.runs._server_run import ServerRun

from ._threads import find_thread, open_thread


async def begin_ui_run(
    state: ServerState, caller: Caller, agent: str, thread: str, asked: Dialogue, renderings: Mapping[str, Rendering]
) -> ServerRun:
    """Begin what a client asks for, from the head of the conversation that its thread is.

    Args:
        state: The server.
        caller: Who asks.
        agent: The agent.
        thread: The client's id of the thread.
        asked: The new words or the decisions; what it claims was said before is not looked at.
        renderings: How the run is to be told.

    Raises:
        ServerError: The caller may not, no run can begin now, a decision does not fit what waits, or something waits
            for a person and the client goes on talking.
        ApprovalAnsweredError: Somebody was faster with a decision.
    """
    agent_for(state, caller, agent)
    check_names(session_id=thread)  # before a conversation is begun for it
    if not asked.decisions:
        version = await open_thread(state, caller, agent, thread)
        run = await begin_run(state, caller, version, _words(asked.prompt), session_id=thread, renderings=renderings)
    else:
        if not caller.has('approve'):
            raise ServerError('forbidden', 'Decisions need a key with the scope `approve`.')
        own = await find_thread(state, caller, agent, thread)
        if own is None:
            raise not_found()
        version = await version_in(state, caller, own, None)
        run = await begin_run(state, caller, version, asked.decisions, session_id=thread, renderings=renderings)
    await run.wait_begun()
    return run


async def tail_thread(
    state: ServerState, caller: Caller, agent: str, thread: str, form: str, last_event_id: str | None
) -> Response:
    """Return the response that tells a thread's run that works now, from its beginning; 204 if none does.

    Args:
        state: The server.
        caller: Who asks.
        agent: The agent.
        thread: The client's id of the thread.
        form: The name of the rendering.
        last_event_id: What the client has read already, of a run that may have ended since.
    """
    own = await find_thread(state, caller, agent, thread)
    if own is None:
        return nothing_more()
    if last_event_id:
        return await tail_after(state, caller, form, last_event_id)
    run = next((run for run in state.hub.runs_in(own.id) if form in run.renderings), None)
    return nothing_more() if run is None else tail_run(state, run, form)


async def tail_after(state: ServerState, caller: Caller, form: str, last_event_id: str) -> Response:
    """Return the response that goes on telling a run where a client was cut off; 204 if there is nothing more.

    Raises:
        ServerError: It is no id of an event, the run is not the caller's, or what it told is not kept any more.
    """
    id = last_event_id.partition('.')[0]
    run = (await own_run(state, caller, id)).here
    position = parse_position(last_event_id, id)
    log = None if run is None else run.renderings.get(form)
    if run is None or log is None or position is None or position.epoch != log.epoch or position.number > len(log):
        raise ServerError(
            'conflict',
            f'What the run {id} told is not kept in this form any more. Read it in ours: `GET /api/runs/{id}/events`.',
            facts={'run_id': id},
        )
    if log.is_closed and position.number == len(log):
        return nothing_more()
    return tail_run(state, run, form, after=position.number)


def tail_run(state: ServerState, run: ServerRun, form: str, *, after: int = 0) -> StreamingResponse:
    """Return the response that tells a run of this process.

    Args:
        state: The server.
        run: The run.
        form: The name of the rendering.
        after: How many events the client has read.
    """
    headers = {
        **HEADERS,
        'location': f'/api/runs/{run.id}',
        'x-run-id': run.id,
        'x-conversation-id': run.conversation_id,
    }
    frames = _frames(run.renderings[form], run.id, after, state.settings.keepalive_seconds)
    return StreamingResponse(frames, media_type='text/event-stream', headers=headers)


def _words(prompt: Sequence[Content]) -> str | list[Content]:
    return prompt[0] if len(prompt) == 1 and isinstance(prompt[0], str) else list(prompt)


async def _frames(log: RunLog, run_id: str, after: int, keepalive_seconds: float) -> AsyncGenerator[bytes]:
    async with aclosing(log.batches(after, idle_seconds=keepalive_seconds)) as batches:
        try:
            async for batch in batches:
                numbered = [_numbered(run_id, log.epoch, number, frame) for number, frame in batch]
                yield b''.join(numbered) or KEEPALIVE
        except LogForgottenError:
            return  # without an end: the client sees that it was cut off


def _numbered(run_id: str, epoch: str, number: int, frame: bytes) -> bytes:
    return f'id: {Position(run_id=run_id, epoch=epoch, number=number)}\n'.encode() + frame
