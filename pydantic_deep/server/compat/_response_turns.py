"""Turns of clients of OpenAI's Responses API: the version that a request continues, and the streams of a response.

A response is streamed again from the log of its run while the log is kept, so that `starting_after` counts the same
events. Its contents without a stream are rebuilt from the store: see `_response_items`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pydantic import JsonValue, TypeAdapter
from starlette.responses import JSONResponse, Response, StreamingResponse

from pydantic_deep.errors import ValidationError
from pydantic_deep.server.access._ownership import Access, AuthorizedRun, ServedVersion
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.runs._event_stream import HEADERS
from pydantic_deep.server.runs._mirrors import epoch_name
from pydantic_deep.server.runs._repetitions import RequestIdentity
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.streaming import (
    Frame,
    ResponsesEncoder,
    StreamEvent,
    openai_error,
    openai_response,
    read_answer,
    render_frames,
)

from ._client_events import client_events, followed_events, parse_texts, run_events
from ._dialogue import Dialogue, merge_messages
from ._response_items import completed_at, rendering_of, schema_of
from ._response_objects import (
    OwnConversation,
    OwnResponse,
    digest_of,
    first_items,
    load_conversation,
    load_response,
    store_response_row,
    system_after,
)
from ._response_requests import CONVERSATION, RESPONSE, InputItem, InputTokensRequest, ResponseRequest
from ._responses import last_run_id, parse_items, parse_response_request
from ._token_count import count_tokens, count_tokens_after
from ._turns import (
    KEEPALIVE,
    CompatTurn,
    Continuation,
    start_conversation,
    start_turn,
)

_FIRST_EPOCHS: Final = (epoch_name(0), epoch_name(1))
"""The epochs of the log of a queued run unless a worker crashes: before the run is claimed, and since."""

_REPEATED: Final = {
    'background',
    'instructions',
    'max_output_tokens',
    'metadata',
    'parallel_tool_calls',
    'previous_response_id',
    'reasoning',
    'temperature',
    'text',
    'tool_choice',
    'tools',
    'top_p',
    'user',
}
"""The fields of a request that its response repeats."""

_REQUIRED: Final[Mapping[str, Mapping[str, JsonValue]]] = {
    'reasoning': {'effort': None, 'summary': None},
    'text': {'format': {'type': 'text'}},
}
"""The members of repeated fields that a response always has (Open Responses 2.3, `ResponseResource`), with defaults."""

_FUNCTION: Final[Mapping[str, JsonValue]] = {'description': None, 'parameters': None, 'strict': None}
"""The members that a function of a response always has."""

ITEMS: Final[TypeAdapter[list[InputItem]]] = TypeAdapter(list[InputItem])
"""Validates input items."""


async def create_response(access: Access, body: ResponseRequest, identity: RequestIdentity) -> Response:
    """Start the turn of a response, and return the response: whole, streamed, or as soon as the turn has started.

    A request that the client repeats joins the run of the first one.

    Raises:
        ServerError: The request is invalid, refers to something that the caller does not own, or no run can start now.
        ApprovalAnsweredError: An approval was already answered.
    """
    access.model(body.model)
    own = await _named_object(access, body)
    dialogue = parse_response_request(body, is_rest=own is not None)

    async def start(run_id: str | None) -> ServerRun:
        continuation, system = (None, '') if own is None else await _continue(access, own, body.model, dialogue)
        fields = _repeated_fields(body)
        if isinstance(own, OwnConversation):
            fields['conversation'] = {'id': own.row.id}
        store_row = partial(store_response_row, access, fields=fields, system=digest_of(dialogue.system) or system)
        if run_id is not None:
            await store_row(run_id)  # before a request at another server can join the run
        try:
            turn = await start_turn(
                access, body.model, dialogue, session_id=body.session_id, continuation=continuation, run_id=run_id
            )
        except Exception:
            if run_id is not None and await access.state.runs.follow(run_id) is None:  # no other server has started it
                await access.state.openai_objects.delete(RESPONSE + run_id)
            raise
        await store_row(turn.run.id)
        return turn.run

    run = await access.state.repetitions.start(access.owner, body.model, identity, start)
    row = await access.state.openai_objects.get(RESPONSE + run.id)
    turn = CompatTurn(access=access, agent_name=body.model, request=dialogue, run=run, continues_id=own is not None)
    if body.stream:
        encoder = ResponsesEncoder(**rendering_of(row, body.model))
        frames = turn.frames(
            turn.events(is_streamed=True), encoder, first=encoder.begin(is_queued=turn.run.is_mirrored)
        )
        return StreamingResponse(frames, media_type='text/event-stream', headers=HEADERS)
    if body.background:
        access.state.runs.tasks.start_soon(turn.store_thread_at_end)
        status = 'queued' if turn.run.state == 'queued' else 'in_progress'
        return JSONResponse(openai_response([], **rendering_of(row, body.model, status=status)))

    def build_body(events: Iterable[StreamEvent]) -> dict[str, JsonValue]:
        events = [*events]
        error = read_answer(events).error
        return openai_response(events, **rendering_of(row, body.model)) if error is None else openai_error(error)

    return await turn.respond(build_body)


def _repeated_fields(body: ResponseRequest) -> dict[str, JsonValue]:
    """Return the fields of a request that its response repeats, with all their members."""
    fields: dict[str, Any] = body.model_dump(mode='json', include=_REPEATED, exclude_none=True, by_alias=True)
    for name, defaults in _REQUIRED.items():
        if name in fields:
            fields[name] = {**defaults, **fields[name]}
    fields['tools'] = [
        {**_FUNCTION, **tool} if tool['type'] == 'function' else tool for tool in fields.get('tools', ())
    ]
    return fields


async def count_input_tokens(access: Access, body: InputTokensRequest) -> int:
    """Return the number of input tokens of a response, which is not created.

    Raises:
        ServerError: The request is invalid, or refers to something that the caller does not own or cannot continue now.
    """
    access.model(body.model)
    own = await _named_object(access, body)
    dialogue = parse_response_request(body, is_rest=own is not None, continues=False)
    if own is None:
        return await count_tokens(access, body.model, dialogue, session_id=body.session_id)
    if isinstance(own, OwnConversation) and own.stored is None:
        return await count_tokens_after(access, None, _first_dialogue(own, dialogue))
    continuation, _ = await _continue(access, own, body.model, dialogue)
    return await count_tokens_after(access, continuation.version, dialogue)


async def stream_response(access: Access, own: OwnResponse, *, starting_after: int | None) -> Response:
    """Return the events of a response, from its beginning or after one that the client has read.

    Raises:
        ServerError: The log of the run is gone or was replaced, so that its events have other numbers.
    """
    run = own.run
    if starting_after is not None and not _has_first_log(run):
        raise ServerError(
            'conflict',
            'The events of this response are not kept any more as they were streamed, so `starting_after` has no '
            'meaning. Omit it to read the response from its beginning.',
        )
    frames = _frames(access, own, after=-1 if starting_after is None else starting_after)
    return StreamingResponse(frames, media_type='text/event-stream', headers=HEADERS)


def _has_first_log(run: AuthorizedRun) -> bool:
    return run.local is not None and (not run.local.is_mirrored or run.local.log.epoch in _FIRST_EPOCHS)


async def _frames(access: Access, own: OwnResponse, *, after: int) -> AsyncGenerator[bytes]:
    run = own.run
    encoder = ResponsesEncoder(**rendering_of(own.row, run.agent.name, completed_at=completed_at(run)))
    is_queued = run.queued is not None
    known = [*encoder.begin(is_queued=is_queued)]
    yield render_frames(known[after + 1 :])
    number = len(known)
    schema = schema_of(own.row)
    source = (
        followed_events(access.state, own.run)
        if run.local is None
        else run_events(access.state, run.local, has_call_deltas=schema is not None)
    )
    async with aclosing(parse_texts(client_events(access, source, schema=schema, is_streamed=True))) as events:
        async for event in events:
            frames = encoder.encode(event) if event is not None else list[Frame]()
            new = frames[max(0, after + 1 - number) :]
            number += len(frames)
            if new or event is None:
                yield render_frames(new) or KEEPALIVE
    yield render_frames(encoder.finish())


async def _named_object(access: Access, body: ResponseRequest) -> OwnResponse | OwnConversation | None:
    """Return what a request continues by an id; `None` if it contains the whole dialogue.

    Items of a response that does not exist here are those of another server.

    Raises:
        ServerError: The caller does not own the object, or two ids contradict each other.
    """
    if body.previous_response_id is not None and body.conversation_id is not None:
        raise ServerError('invalid', '`previous_response_id` and `conversation` exclude each other. Send one of them.')
    if body.conversation_id is not None:
        return await load_conversation(access, body.conversation_id)
    run_id = last_run_id(body)
    if body.previous_response_id is None:
        return None if run_id is None else await _find_response(access, run_id)
    own = await load_response(access, body.previous_response_id)
    if run_id not in (None, own.row.id.removeprefix(RESPONSE)):
        raise ServerError('invalid', '`input` contains items of another response than `previous_response_id`.')
    return own


async def _find_response(access: Access, run_id: str) -> OwnResponse | None:
    try:
        return await load_response(access, run_id)
    except ServerError:
        return None


async def _continue(
    access: Access, own: OwnResponse | OwnConversation, agent_name: str, dialogue: Dialogue
) -> tuple[Continuation, str]:
    """Return the version to continue, and the SHA-256 of the system prompt that is in effect there.

    Raises:
        ServerError: The version belongs to another agent, or cannot be continued now.
    """
    if isinstance(own, OwnConversation) and own.stored is None:
        return await _begin_conversation(access, own, agent_name, dialogue)
    if isinstance(own, OwnResponse):
        _refuse_other_agent(own.run.agent.name, agent_name)
        version, system = await _version_after(access, own), own.row.system
    else:
        assert own.stored is not None  # noqa: S101 - see above
        _refuse_other_agent(own.stored.agent.name, agent_name)
        version = await access.version_in(own.stored)
        system = await system_after(access.state, version.record.run_id)
    is_new = digest_of(dialogue.system) != system
    return Continuation(version=version, new_instructions=is_new, may_branch=isinstance(own, OwnResponse)), system


async def _version_after(access: Access, own: OwnResponse) -> ServedVersion:
    stored = own.run.stored
    if own.is_running:
        raise ServerError(
            'conflict', f'The response {own.row.id} is in progress. Wait for its end, or cancel it, to continue it.'
        )
    if stored is None or stored.version is None:
        raise ServerError(
            'conflict', f'The response {own.row.id} ended before its first step. Continue the response before it.'
        )
    return await access.load_version(own.run.agent, stored.version)


async def _begin_conversation(
    access: Access, own: OwnConversation, agent_name: str, dialogue: Dialogue
) -> tuple[Continuation, str]:
    """Create the conversation for the agent of its first response."""
    first = _first_dialogue(own, dialogue)
    try:
        version = await start_conversation(access, agent_name, first, id=own.row.id.removeprefix(CONVERSATION))
    except ValidationError as error:
        if error.field != 'conversation_id':
            raise
        begun = await load_conversation(access, own.row.id)  # another request has created it meanwhile
        return await _continue(access, begun, agent_name, dialogue)
    return Continuation(version=version), ''


def _first_dialogue(own: OwnConversation, dialogue: Dialogue) -> Dialogue:
    """Return the first request of a conversation after the items that the conversation was created with."""
    system, messages, _ = parse_items(ITEMS.validate_python(first_items(own.row.fields)))
    return replace(
        dialogue,
        system='\n\n'.join(text for text in (*system, dialogue.system) if text),
        messages=merge_messages(messages),
    )


def _refuse_other_agent(name: str, model: str) -> None:
    if name != model:
        raise ServerError('invalid', f'The history belongs to the agent {name!r}. Use it as `model`.')
