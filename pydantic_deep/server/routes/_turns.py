"""Routes of turns and runs: start, watch, resume and cancel them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, cast

import anyio
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic_ai.messages import UserContent
from pydantic_ai.settings import ModelSettings

from pydantic_deep.plan_mode import has_plan_mode, with_plan_mode
from pydantic_deep.server._agents import ServedAgent
from pydantic_deep.server._run_start import start_run
from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._authentication import UNAVAILABLE_ERRORS
from pydantic_deep.server.access._ownership import Access, AuthorizedConversation, AuthorizedRun, ServedVersion
from pydantic_deep.server.http._errors import ServerError, describe_errors
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.runs._event_stream import (
    FRAME_SCHEMA,
    STORED_EPOCH,
    no_more_events,
    parse_position,
    tail_log,
    tail_stored,
)
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.server.runs._stored_run_events import follow_stored_run, stored_run_events
from pydantic_deep.server.runs._stored_runs import StoredRun, load_run
from pydantic_deep.server.schemas._approvals import to_decision
from pydantic_deep.server.schemas._runs import NewBranch, NewTurn, Resumption, RunList, build_run
from pydantic_deep.store import QueuedRunRecord
from pydantic_deep.streaming import EventGroup, selected_groups
from pydantic_deep.versions import TurnOptions
from pydantic_deep.views import Run, TurnLineages

from ._parameters import Runner

_LOGGER = logging.getLogger('pydantic_deep')

router = APIRouter(prefix='/api', route_class=JsonRoute)

POLL_SECONDS = 0.5
"""Interval, in seconds, at which the store is polled for a watched run of another process."""

CANCEL_SECONDS = 10
"""How long a request to cancel a run waits for the process that executes the run."""

STREAM = 'text/event-stream'

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        'description': 'The run has ended; or, if `Accept` requests a stream, its events as they occur.',
        'content': {STREAM: {'itemSchema': FRAME_SCHEMA, 'example': 'event: text\nid: …\ndata: {"type":"text"}\n\n'}},
    },
    202: {
        'description': 'The run has started: with `wait=false`, or if a worker executes it and this server stops.',
        'model': Run,
    },
}


async def event_selection(
    tool_results: Annotated[
        bool, Query(description='Include results of tools, and the text and thinking of subagents.')
    ] = False,
    function_calls: Annotated[bool, Query(description='Include tool calls, as `function_call`.')] = False,
    thinking: Annotated[bool, Query(description="Include the model's thinking.")] = False,
) -> EventGroup:
    """Return the groups of events that a client requested."""
    return selected_groups(tool_results=tool_results, function_calls=function_calls, thinking=thinking)


SelectedEvents = Annotated[EventGroup, Depends(event_selection)]


@dataclass(frozen=True, kw_only=True)
class TurnRequest:
    """A dependency: the response that a client requests for a turn."""

    request: Request
    access: Runner
    selection: SelectedEvents
    wait: Annotated[
        bool, Query(description='Respond when the run has ended, or with 202 as soon as it has started.')
    ] = True

    async def run(self, version: ServedVersion, body: NewBranch | Resumption, options: TurnOptions) -> Response:
        """Start the turn, and return its events, its result, or HTTP 202."""
        state = self.access.state
        run = await start_run(
            self.access, version, options, max_iterations=body.max_iterations, session_id=body.session_id
        )
        headers = {'location': f'/api/runs/{run.id}', 'x-run-id': run.id}
        if STREAM in self.request.headers.get('accept', ''):
            response = tail_log(
                run.log, run.id, None, self.selection, keepalive_seconds=state.settings.keepalive_seconds
            )
            response.headers.update(headers)
            return response
        if self.wait:
            await run.wait()
        stored: StoredRun | None = None
        queued: QueuedRunRecord | None = None
        with suppress(*UNAVAILABLE_ERRORS):  # if the store has lost the run, the response is built from this process
            stored = await load_run(state.store, state.runs, run.id)
            queued = await state.store.queue.get(run.id) if run.is_mirrored else None
        agent = state.agents[run.agent_name]
        own = AuthorizedRun(id=run.id, agent=agent, local=run, stored=stored, queued=queued)
        shape = await build_run(state, own)
        has_ended = self.wait and run.outcome is not None  # otherwise the server stops, and the run does not
        return JSONResponse(shape.model_dump(mode='json'), 200 if has_ended else 202, headers=headers)


RequestedTurn = Annotated[TurnRequest, Depends()]


@router.post(
    '/conversations/{conversation}/turns',
    tags=['conversations'],
    summary='Run a turn',
    response_model=Run,
    responses={**_RESPONSES, **describe_errors('not_found', 'conflict')},
)
async def create_turn(conversation: str, body: NewTurn, turn: RequestedTurn) -> Response:
    """The run continues if the client disconnects, and its events can be read again by its id.

    With `Accept: text/event-stream`, the run is streamed. Only one turn at a time can continue a version.
    """
    own = await turn.access.conversation(conversation)
    version = await turn.access.version_in(own, body.from_version)
    return await turn.run(version, body, options_from(turn.access, version, body))


@router.post(
    '/versions/{version}/branch',
    tags=['versions'],
    summary='Run a turn on a new branch',
    response_model=Run,
    responses={**_RESPONSES, **describe_errors('not_found', 'conflict')},
)
async def create_branch(version: str, body: NewBranch, turn: RequestedTurn) -> Response:
    """Starts a turn from any version. The head moves only if that version is the head."""
    base = await turn.access.version(version)
    return await turn.run(base, body, options_from(turn.access, base, body))


@router.post(
    '/conversations/{conversation}/resume',
    tags=['conversations', 'approvals'],
    summary='Answer pending approvals and resume the turn',
    response_model=Run,
    responses={**_RESPONSES, **describe_errors('not_found', 'conflict')},
)
async def resume(conversation: str, body: Resumption, turn: RequestedTurn) -> Response:
    """Approvals without an answer remain pending. Answering also requires the scope `approve`."""
    if body.answers and not turn.access.has('approve'):
        raise ServerError('forbidden', 'Answering approvals requires a key with the scope `approve`.')
    own = await turn.access.conversation(conversation)
    version = await turn.access.version_in(own, body.from_version)
    answers = {id: to_decision(answer) for id, answer in body.answers.items()}
    return await turn.run(version, body, TurnOptions(answers=answers, reason=body.reason))


@router.get('/runs', tags=['runs'], summary='List runs, newest first', responses=describe_errors('not_found'))
async def list_runs(
    access: Runner,
    conversation: Annotated[str | None, Query(description='Only runs of this conversation.', max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=200, description='Maximum number of items in the list.')] = 50,
) -> RunList:
    """Returns all runs of a conversation; without `conversation`, the active and recently ended runs of this process and
    of all workers.
    """
    items: dict[str, Run] = {}
    conversations: dict[str, AuthorizedConversation] = {}
    lineages = TurnLineages(store=access.state.store)
    ids = await list_run_ids(access, conversation, limit=limit)
    for id in reversed(ids):  # the version of a run before its next one
        with suppress(ServerError):  # the conversation was deleted, but the log of the run is still cached
            own = await access.run(id, follow=False, conversations=conversations)
            first = id if own.stored is None else own.stored.attempts[0].id  # all attempts are one run
            if first not in items:
                items[first] = await build_run(access.state, own, lineages)
    return RunList(items=list(items.values())[::-1])


async def list_run_ids(
    access: Access, conversation: str | None, *, limit: int, agent: str | None = None
) -> Sequence[str]:
    """Return the ids of the caller's runs, newest first: all of a conversation, otherwise the active and recent ones.

    Args:
        access: The access of the caller.
        conversation: The conversation; `None` for all.
        limit: The maximum number of ids.
        agent: The agent of the runs; `None` for all.

    Raises:
        ServerError: The caller has no access to the conversation.
    """
    if conversation is None:
        queued = await access.state.store.queue.list(account=access.owner, ended=True, limit=limit)
        here = [(run.id, run.agent_name) for run in access.state.runs.runs_of(access.owner)]
        known = {*here, *((run.run_id, run.agent_name) for run in queued)}
        ids = {id for id, name in known if access.may_use(name) and agent in (None, name)}
    else:
        own = await access.conversation(conversation)
        if agent not in (None, own.record.agent_name):
            return []
        stored = await access.state.store.runs(conversation_id=own.id, limit=limit)
        queued = await access.state.store.queue.list(conversation_id=own.id, ended=True, limit=limit)
        here = [run.id for run in access.state.runs.runs_of(access.owner) if run.conversation_id == own.id]
        ids = {*here, *(run.id for run in stored), *(run.run_id for run in queued)}
    return sorted(ids, reverse=True)[:limit]


@router.get('/runs/{run}', tags=['runs'], summary='Get a run', responses=describe_errors('not_found'))
async def read_run(run: str, access: Runner) -> Run:
    """Returns the state of a run of this process or of another."""
    return await build_run(access.state, await access.run(run))


@router.get(
    '/runs/{run}/events',
    tags=['runs'],
    summary='Stream the events of a run',
    response_class=Response,
    responses={
        200: {'description': 'The events of the run as they occur.', 'content': _RESPONSES[200]['content']},
        204: {'description': 'No more events: the client has read all of them.'},
        **describe_errors('not_found'),
    },
)
async def watch_run(
    run: str,
    access: Runner,
    selection: SelectedEvents,
    last_event_id: Annotated[str | None, Header(description='The id of the last event that was read.')] = None,
    after: Annotated[
        str | None,
        Query(
            alias='last_event_id',
            description='The same as the header, for clients that cannot send headers.',
            max_length=200,
        ),
    ] = None,
) -> Response:
    """Streams from the beginning, or after the event whose `id` was read last. Any number of clients may watch.

    If the events are divided differently than those read before, `event: reset` comes first: discard all earlier events
    of this run.
    """
    own = await access.run(run)
    position = parse_position(last_event_id or after, run)
    if own.local is not None:
        return tail_log(
            own.local.log, run, position, selection, keepalive_seconds=access.state.settings.keepalive_seconds
        )
    stored = cast('StoredRun', own.stored)
    after_number = 0 if position is None or position.epoch != STORED_EPOCH else position.number
    if after_number and stored.is_over and after_number >= len(await stored_run_events(own.agent, stored)):
        return no_more_events()
    batches = follow_stored_run(access.state.runs, own.agent, stored, after=after_number, poll_seconds=POLL_SECONDS)
    return tail_stored(batches, run, position, selection)


@router.post('/runs/{run}/cancel', tags=['runs'], summary='Cancel a run', responses=describe_errors('not_found'))
async def cancel_run(run: str, access: Runner) -> Run:
    """Cancels a run. Completed work is preserved. Cancelling a run that has ended has no effect.

    The response is sent when the end of the run is stored. Any process can cancel a run of any other. Cancelling a
    suspended run ends it, so that it is not resumed. If the store is unavailable, the response is 503, and the run may
    still be resumed. If the process of the run does not end it within 10 seconds, the response is 503, and the request
    remains stored.
    """
    return await build_run(access.state, await cancel_own_run(access, run))


async def cancel_own_run(access: Access, run: str) -> AuthorizedRun:
    """Cancel a run that the caller owns, and return it.

    Raises:
        ServerError: The caller owns no such run, its process has not ended it in time, or the store is unavailable.
    """
    own = await access.run(run)
    if own.has_ended:
        return own
    try:
        if own.local is not None:
            await _cancel(access.state, own.local)
            own = await access.run(run)
        elif own.stored is not None and not own.stored.is_over:
            own = await _cancel_elsewhere(access, own.stored)
        if own.stored is not None and own.stored.is_suspended and await own.agent.cancel(own.stored.last.id):
            own = await access.run(run)
    except UNAVAILABLE_ERRORS:
        raise ServerError(
            'unavailable',
            f'The store cannot record the end of run {run} now, so the run may resume. Cancel it again later.',
            headers={'Retry-After': '5'},
        ) from None
    return own


async def _cancel(state: ServerState, run: ServerRun) -> None:
    """Cancel a run, and wait for its end."""
    if not run.is_mirrored:
        run.cancel()
        await run.wait()
        return
    await state.runs.request_cancel(run)
    with anyio.move_on_after(CANCEL_SECONDS) as waiting:
        await run.wait()
    if waiting.cancelled_caught:
        raise _slow_cancellation(run.id, 'no worker has ended the run yet. It ends when a worker is available.')


async def _cancel_elsewhere(access: Access, run: StoredRun) -> AuthorizedRun:
    """Request the process that executes a run to cancel it, and wait until it has ended, or is suspended because the
    process has crashed.
    """
    requested: str | None = None
    with anyio.move_on_after(CANCEL_SECONDS):
        while not run.is_over:
            if run.last.id != requested:  # another attempt may begin meanwhile
                requested = run.last.id
                await access.state.store.queue.request_cancel(requested)
                await access.state.runs.cancel_requested()  # a run that this process has resumed
            await anyio.sleep(POLL_SECONDS)
            own = await access.run(run.id)
            run = own.stored or run
        return await access.run(run.id)
    raise _slow_cancellation(run.id, 'the process that executes the run has not ended it yet. Read the run later.')


def _slow_cancellation(run_id: str, problem: str) -> ServerError:
    return ServerError(
        'unavailable',
        f'The request to cancel run {run_id} is stored, but {problem}',
        headers={'Retry-After': '5'},
    )


@router.post(
    '/runs/{run}/resume',
    tags=['runs'],
    status_code=202,
    summary='Resume a suspended run',
    responses=describe_errors('not_found', 'conflict', 'rate_limited'),
)
async def resume_run(run: str, access: Runner) -> Run:
    """Continues a run that has no end in the store. If its conversation has moved on, it continues on a new branch.

    Calls that may already have run require an approval first.
    """
    own = await access.run(run)
    if own.stored is None or not own.stored.is_suspended:
        raise ServerError('conflict', f'The run {run} is not suspended.')
    runs, key_id = access.state.runs, access.caller.account
    await runs.check_capacity(key_id)
    if access.state.hands_over:
        await runs.submit_rest(own.stored.attempts[0], owner=access.owner, key_id=key_id)
    else:
        resumed = own.stored.last.id
        runs.resuming[resumed] = key_id
        runs.tasks.start_soon(_resume, access.state, own.agent, resumed)
    return await build_run(access.state, await access.run(run))


async def _resume(state: ServerState, agent: ServedAgent, run_id: str) -> None:
    try:
        with state.runs.resumption() as make_token:
            await agent.recover(run_id, make_token=make_token)
    except Exception:  # outermost boundary of a background task
        _LOGGER.exception('The run %s could not be resumed', run_id)
    finally:
        state.runs.resuming.pop(run_id, None)


def options_from(access: Access, version: ServedVersion, body: NewBranch) -> TurnOptions:
    """Return the turn options that a client sent.

    Raises:
        ServerError: The client switches plan mode, and the agent has none.
    """
    settings = {} if body.model_settings is None else body.model_settings.model_dump(exclude_none=True)
    prompt: str | list[UserContent] = body.prompt
    if body.plan_mode is not None:
        if not has_plan_mode(access.agent(version.agent_name).agent):
            raise ServerError(
                'invalid',
                f'The agent {version.agent_name!r} has no plan mode. Omit `plan_mode`, or serve it with `PlanMode`.',
            )
        prompt = with_plan_mode(prompt, is_on=body.plan_mode)
    return TurnOptions(prompt=prompt, branch=body.branch, model_settings=cast('ModelSettings', settings))
