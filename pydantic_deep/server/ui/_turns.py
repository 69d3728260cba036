"""Turns of threads of user interfaces: start a run, and stream it in the format of the protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from starlette.responses import Response, StreamingResponse

from pydantic_deep._checks import check_names
from pydantic_deep._messages.call_ids import unescape_call_id
from pydantic_deep.approvals import PendingApproval
from pydantic_deep.server._run_start import refuse_if_running, start_run
from pydantic_deep.server._state import ServerState
from pydantic_deep.server._turn_task import load_task
from pydantic_deep.server.access._ownership import Access, AuthorizedConversation, ServedVersion
from pydantic_deep.server.compat._client_results import with_results
from pydantic_deep.server.compat._client_tools import ClientResult
from pydantic_deep.server.compat._dialogue import NOTHING_NEW, Dialogue, invalid_request, prompt_of
from pydantic_deep.server.http._errors import ServerError, not_found
from pydantic_deep.server.runs._event_stream import HEADERS, log_frames, no_more_events, parse_position
from pydantic_deep.server.runs._renderings import LOG_EPOCH, Rendering, append_chunks
from pydantic_deep.server.runs._run_log import RunLog
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.server.runs._stored_runs import active_queued_runs
from pydantic_deep.store import VersionFilter, VersionNotFoundError, VersionRecord
from pydantic_deep.versions import TurnOptions

from ._native_events import logged_events
from ._threads import find_thread, open_thread


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a prompt continues its thread, as the client shows it."""

    answer_id: str | None = None
    """The id of the answer before the prompt, which begins with the id of its run; `None` if there is none."""
    is_edited: bool = False
    """Whether the client says that it replaces a prompt or an answer. If not, an unknown answer does not count."""


async def start_thread_run(
    access: Access,
    agent: str,
    thread: str,
    dialogue: Dialogue,
    *,
    place: Place,
    form: str,
    render: Rendering,
) -> ServerRun:
    """Start the run that a client requests, from the version that its thread shows.

    Args:
        access: The access of the caller.
        agent: The name of the agent.
        thread: The client's id of the thread.
        dialogue: The prompt, the decisions, or the results of external calls. Earlier messages are ignored.
        place: Where a prompt continues the thread.
        form: The name of the rendering.
        render: Renders the run.

    Raises:
        ServerError: The caller lacks a scope, no run can start now, a decision does not match a pending approval, or
            approvals are pending and the request contains a prompt.
        ApprovalAnsweredError: An approval was already answered.
    """
    access.agent(agent)
    check_names(session_id=thread)  # before a conversation is created for it
    if dialogue.decisions and not access.has('approve'):
        raise ServerError('forbidden', 'Decisions require a key with the scope `approve`.')
    own = await find_thread(access, agent, thread)
    head = None if own is None else await access.version_in(own)
    version, answers = head, dialogue.decisions
    if answers and head is None:
        raise not_found()
    if head is not None and dialogue.results:
        results = await _external_results(access, head, dialogue.results)
        if dialogue.prompt and len(results) == len(head.pending):
            version = await with_results(access, head, {call.id: result for call, result in results})
        elif not dialogue.prompt:
            answers = {**answers, **{call.id: result.decision for call, result in results}}
    if not answers and not dialogue.prompt:
        raise invalid_request(NOTHING_NEW)
    is_prompt = version is head and not answers
    if own is not None and head is not None and is_prompt:
        version = await _version_to_continue(access, own, head, place)
    version = version or await open_thread(access, agent, thread)
    options = TurnOptions(
        prompt=prompt_of(dialogue.prompt) if dialogue.prompt else None,
        answers=answers,
        external_tools=dialogue.tools.tools,
    )
    here = None if access.state.hands_over else {form: render}
    async with _head_at(access, version if is_prompt else None, head):
        run = await start_run(access, version, options, session_id=thread, renderings=here)
    _render_here(access.state, run, form, render)
    return run


@asynccontextmanager
async def _head_at(access: Access, version: ServedVersion | None, head: ServedVersion | None) -> AsyncGenerator[None]:
    """Move the head to another version, from which a run is started, and back if the run is refused."""
    if version is None or head is None or version.id == head.id:
        yield
        return
    conversation = access.agent(version.agent_name).conversation(version.conversation_id)
    await conversation.move_to(version)
    try:
        yield
    except Exception:
        await conversation.move_to(head)
        raise


async def _external_results(
    access: Access, version: ServedVersion, results: Sequence[ClientResult]
) -> list[tuple[PendingApproval, ClientResult]]:
    """Return the pending external calls of the agent that have a result, with it. Other results are ignored.

    Raises:
        ServerError: A call is not of a tool that the client declared, and the caller lacks the scope `approve`.
    """
    requests = version.deferred_tool_requests
    external = set[str]() if requests is None else {call.tool_call_id for call in requests.calls}
    pending = {unescape_call_id(call.id): call for call in version.pending if not call.path}
    given = [(pending[result.id], result) for result in results if result.id in external & pending.keys()]
    declared = {tool.name for tool in await version.external_tools()} if given else set[str]()
    if not access.has('approve') and any(call.tool not in declared for call, _ in given):
        raise ServerError('forbidden', 'The result of a tool of the agent requires a key with the scope `approve`.')
    return given


async def _version_to_continue(
    access: Access, own: AuthorizedConversation, head: ServedVersion, place: Place
) -> ServedVersion:
    """Return the version that a prompt continues: the head, or the earlier one that the thread of the client ends with.

    Raises:
        ServerError: The client edits the thread after an unknown answer, or while a run is active.
    """
    shown = await _shown_version(access, own, place)
    if shown is None and place.is_edited:
        raise invalid_request(
            f'The answer {place.answer_id!r} before the edited message is unknown, so the message has no place. '
            'Send the ids of answers as this server streamed them.'
        )
    if shown is None or shown.id == (await _last_of_turn(access, head.record)).id:
        return head
    await refuse_if_running(access.state, own.id)
    return await access.load_version(own.agent, shown)


async def _shown_version(access: Access, own: AuthorizedConversation, place: Place) -> VersionRecord | None:
    """Return the version that the thread of the client ends with before its prompt; `None` if it is unknown."""
    store = access.state.store
    if place.answer_id is None:
        roots = await store.versions(VersionFilter(conversation_id=own.id, kinds=['root']), limit=1)
        return roots[0] if roots and place.is_edited else None
    with suppress(ServerError, VersionNotFoundError):  # the id is not one of ours, or the version was deleted
        run = (await load_task(access, place.answer_id.partition('.')[0])).run
        if run.conversation_id == own.id and run.version_id is not None:
            return await store.version(run.version_id)
    return None


async def _last_of_turn(access: Access, record: VersionRecord) -> VersionRecord:
    """Return the version that a turn ended with, before edits such as uploads."""
    with suppress(VersionNotFoundError):
        while record.kind in ('edit', 'merge') and record.parent_id is not None:
            record = await access.state.store.version(record.parent_id)
    return record


async def tail_thread(
    access: Access, agent: str, thread: str, form: str, render: Rendering, last_event_id: str | None
) -> Response:
    """Return a response that streams the active run of a thread from its beginning, or 204 if there is none.

    Args:
        access: The access of the caller.
        agent: The name of the agent.
        thread: The client's id of the thread.
        form: The name of the rendering.
        render: Renders the run if it is not rendered here yet.
        last_event_id: The id of the last event that the client read, of a run that may have ended.
    """
    own = await find_thread(access, agent, thread)
    if own is None:
        return no_more_events()
    if last_event_id:
        return await tail_after(access, form, render, last_event_id)
    here = {run.id for run in access.state.runs.runs_in(own.id)}
    active = sorted(here | {run.run_id for run in await active_queued_runs(access.state.store, own.id)})
    run = (await access.run(active[0])).local if active else None
    if run is None:
        return no_more_events()
    _render_here(access.state, run, form, render)
    return tail_run(access.state, run, form)


def _render_here(state: ServerState, run: ServerRun, form: str, render: Rendering) -> None:
    """Render the log of a run, unless the run is rendered here already."""
    if form not in run.renderings:
        run.renderings[form] = RunLog(epoch=LOG_EPOCH, memory_bytes=state.settings.log_memory_bytes)
        state.runs.tasks.start_soon(append_chunks, run, form, render(run.id, logged_events(run)))


async def tail_after(access: Access, form: str, render: Rendering, last_event_id: str) -> Response:
    """Return a response that resumes the stream of a run, or 204 if there are no more events.

    Raises:
        ServerError: The id does not belong to an event, the caller does not own the run, or its log was removed.
    """
    id = last_event_id.partition('.')[0]
    run = (await access.run(id)).local
    position = parse_position(last_event_id, id)
    if run is not None and position is not None and position.epoch == LOG_EPOCH:
        _render_here(access.state, run, form, render)
    log = None if run is None else run.renderings.get(form)
    if (
        run is None
        or log is None
        or position is None
        or position.epoch != log.epoch
        or (log.is_closed and position.number > len(log))
    ):
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
