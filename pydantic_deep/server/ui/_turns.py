"""Turns of threads of user interfaces: start a run, and stream it in the format of the protocol."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response, StreamingResponse

from pydantic_deep._checks import check_names
from pydantic_deep.server._run_start import start_run
from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.compat._dialogue import Dialogue, prompt_of
from pydantic_deep.server.http._errors import ServerError, not_found
from pydantic_deep.server.runs._event_stream import HEADERS, log_frames, no_more_events, parse_position
from pydantic_deep.server.runs._renderings import Rendering
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.versions import TurnOptions

from ._threads import find_thread, open_thread


async def start_thread_run(
    access: Access, agent: str, thread: str, dialogue: Dialogue, renderings: Mapping[str, Rendering]
) -> ServerRun:
    """Start the run that a client requests, from the head of the conversation of its thread.

    Args:
        access: The access of the caller.
        agent: The name of the agent.
        thread: The client's id of the thread.
        dialogue: The prompt or the decisions. Earlier messages are ignored.
        renderings: The renderings of the run, by name.

    Raises:
        ServerError: The caller lacks a scope, no run can start now, a decision does not match a pending approval, or
            approvals are pending and the request contains a prompt.
        ApprovalAnsweredError: An approval was already answered.
    """
    access.agent(agent)
    check_names(session_id=thread)  # before a conversation is created for it
    if not dialogue.decisions:
        version = await open_thread(access, agent, thread)
        options = TurnOptions(prompt=prompt_of(dialogue.prompt))
    else:
        if not access.has('approve'):
            raise ServerError('forbidden', 'Decisions require a key with the scope `approve`.')
        own = await find_thread(access, agent, thread)
        if own is None:
            raise not_found()
        version = await access.version_in(own)
        options = TurnOptions(answers=dialogue.decisions)
    run = await start_run(access, version, options, session_id=thread, renderings=renderings)
    await run.begun.wait()
    return run


async def tail_thread(access: Access, agent: str, thread: str, form: str, last_event_id: str | None) -> Response:
    """Return a response that streams the running run of a thread from its beginning, or 204 if there is none.

    Args:
        access: The access of the caller.
        agent: The name of the agent.
        thread: The client's id of the thread.
        form: The name of the rendering.
        last_event_id: The id of the last event that the client read, of a run that may have ended.
    """
    own = await find_thread(access, agent, thread)
    if own is None:
        return no_more_events()
    if last_event_id:
        return await tail_after(access, form, last_event_id)
    run = next((run for run in access.state.runs.runs_in(own.id) if form in run.renderings), None)
    return no_more_events() if run is None else tail_run(access.state, run, form)


async def tail_after(access: Access, form: str, last_event_id: str) -> Response:
    """Return a response that resumes the stream of a run, or 204 if there are no more events.

    Raises:
        ServerError: The id does not belong to an event, the caller does not own the run, or its log was removed.
    """
    id = last_event_id.partition('.')[0]
    run = (await access.run(id)).local
    position = parse_position(last_event_id, id)
    log = None if run is None else run.renderings.get(form)
    if run is None or log is None or position is None or position.epoch != log.epoch or position.number > len(log):
        raise ServerError(
            'conflict',
            f'The events of run {id} are no longer available in this format. Use `GET /api/runs/{id}/events`.',
            facts={'run_id': id},
        )
    if log.is_closed and position.number == len(log):
        return no_more_events()
    return tail_run(access.state, run, form, after=position.number)


def tail_run(state: ServerState, run: ServerRun, form: str, *, after: int = 0) -> StreamingResponse:
    """Return a response that streams a run of this process.

    Args:
        state: The state of the server.
        run: The run.
        form: The name of the rendering.
        after: The number of events that the client has read.
    """
    headers = {
        **HEADERS,
        'location': f'/api/runs/{run.id}',
        'x-run-id': run.id,
        'x-conversation-id': run.conversation_id,
    }
    frames = log_frames(run.renderings[form], run.id, after, bytes, state.settings.keepalive_seconds)
    return StreamingResponse(frames, media_type='text/event-stream', headers=headers)
