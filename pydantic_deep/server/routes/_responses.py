"""OpenAI's Responses API: responses are runs of agents, and conversations those of the store.

The mapping is in the docstring of `compat._responses`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, Field, JsonValue
from starlette.responses import JSONResponse, Response

from pydantic_deep._examples import example_config
from pydantic_deep.server.compat._repetitions import Identity
from pydantic_deep.server.compat._response_items import build_response, conversation_items, input_items, page
from pydantic_deep.server.compat._response_objects import (
    change_metadata,
    create_conversation,
    delete_own_conversation,
    delete_response,
    load_conversation,
    load_response,
    render_conversation,
)
from pydantic_deep.server.compat._response_requests import InputItem, Metadata, ResponseRequest
from pydantic_deep.server.compat._response_turns import create_response, stream_response
from pydantic_deep.server.http._errors import describe_errors
from pydantic_deep.server.http._json_route import JsonRoute

from ._parameters import Runner
from ._turns import cancel_own_run

router = APIRouter(prefix='/v1', tags=['openai'], route_class=JsonRoute)

_ERRORS = describe_errors('not_found', 'conflict', 'too_large', api='openai')

_CONVERSATION: dict[str, JsonValue] = {
    'id': 'conv_01a21f80-0d5e-7c9e-9d2b-7f6c0c6a1b11',
    'object': 'conversation',
    'created_at': 1795824000,
    'metadata': {'topic': 'sales'},
}
_RESPONSE: dict[str, JsonValue] = {
    'id': 'resp_01a21f80-0d5e-7c9e-9d2b-7f6c0c6a1b12',
    'object': 'response',
    'created_at': 1795824000,
    'status': 'cancelled',
    'model': 'analyst',
    'output': [],
}
_ITEMS: dict[str, JsonValue] = {
    'object': 'list',
    'data': [{'type': 'message', 'role': 'user', 'content': [{'type': 'input_text', 'text': 'Read sales.csv.'}]}],
    'has_more': False,
}


def _deleted(id: JsonValue, kind: str) -> dict[str, JsonValue]:
    return {'id': id, 'object': kind, 'deleted': True}


def _with_example(example: dict[str, JsonValue]) -> dict[int | str, dict[str, Any]]:
    """Return the responses of a route with an example of its result."""
    return {200: {'content': {'application/json': {'example': example}}}, **_ERRORS}


_Order = Annotated[Literal['asc', 'desc'], Query(description='The order of the items.')]
_Limit = Annotated[int, Query(ge=1, le=100, description='Maximum number of items in the page.')]
_After = Annotated[str | None, Query(description='The id of the last item of the previous page.', max_length=200)]


class NewOpenaiConversation(BaseModel):
    """A conversation to create. Its first response determines its agent."""

    model_config = example_config({'metadata': {'topic': 'sales'}})

    items: Annotated[list[InputItem], Field(max_length=20)] | None = None
    """Messages to begin with."""
    metadata: Metadata | None = None
    """Metadata, returned with the conversation."""


class OpenaiConversationChange(BaseModel):
    """New metadata of a conversation."""

    model_config = example_config({'metadata': {'topic': 'sales'}})

    metadata: Metadata
    """Metadata, which replaces the old."""


@router.post(
    '/responses',
    summary='Create a response',
    response_class=Response,
    responses={200: {'description': 'A response, or events of it as server-sent events.'}, **_ERRORS},
)
async def create_openai_response(
    body: Annotated[
        ResponseRequest,
        Body(openapi_examples={'words': {'value': {'model': 'analyst', 'input': 'Read sales.csv.'}}}),
    ],
    access: Runner,
    identity: Identity,
) -> Response:
    """Requires the scope `run`; for decisions, also `approve`. `model` is the name of an agent."""
    return await create_response(access, body, identity)


@router.get(
    '/responses/{response}',
    summary='Get a response',
    response_class=Response,
    responses={200: {'description': 'The response, or events of it as server-sent events.'}, **_ERRORS},
)
async def read_openai_response(
    response: str,
    access: Runner,
    stream: Annotated[bool, Query(description='Stream the events of the response, from its beginning.')] = False,
    starting_after: Annotated[
        int | None, Query(ge=0, description='With `stream`: the `sequence_number` of the last event that was read.')
    ] = None,
) -> Response:
    """Requires the scope `run`. A response in progress has the output of its steps so far."""
    own = await load_response(access, response)
    if stream:
        return await stream_response(access, own, starting_after=starting_after)
    return JSONResponse(await build_response(access, own))


@router.delete(
    '/responses/{response}', summary='Delete a response', responses=_with_example(_deleted(_RESPONSE['id'], 'response'))
)
async def delete_openai_response(response: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`. Deletes the versions of the response. Later responses remain, and keep its messages."""
    own = await load_response(access, response)
    await delete_response(access, own)
    return _deleted(own.row.id, 'response')


@router.post('/responses/{response}/cancel', summary='Cancel a response', responses=_with_example(_RESPONSE))
async def cancel_openai_response(response: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`. Completed work is preserved. Cancelling a response that has ended has no effect."""
    own = await load_response(access, response)
    await cancel_own_run(access, own.run.id)
    return await build_response(access, await load_response(access, response))


@router.get(
    '/responses/{response}/input_items', summary='List the input items of a response', responses=_with_example(_ITEMS)
)
async def list_openai_input_items(
    response: str, access: Runner, order: _Order = 'desc', limit: _Limit = 20, after: _After = None
) -> dict[str, JsonValue]:
    """Requires the scope `run`. Lists the items of the request, without those of earlier responses."""
    items = await input_items(access, await load_response(access, response))
    return page(items, order=order, after=after, limit=limit)


@router.post('/conversations', summary='Create a conversation', responses=_with_example(_CONVERSATION))
async def create_openai_conversation(body: NewOpenaiConversation, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`. The first response of the conversation determines its agent."""
    return render_conversation(await create_conversation(access, body.items or [], body.metadata or {}))


@router.get('/conversations/{conversation}', summary='Get a conversation', responses=_with_example(_CONVERSATION))
async def read_openai_conversation(conversation: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`."""
    return render_conversation((await load_conversation(access, conversation)).row)


@router.post(
    '/conversations/{conversation}',
    summary='Change the metadata of a conversation',
    responses=_with_example(_CONVERSATION),
)
async def update_openai_conversation(
    conversation: str, body: OpenaiConversationChange, access: Runner
) -> dict[str, JsonValue]:
    """Requires the scope `run`."""
    own = await load_conversation(access, conversation)
    return render_conversation(await change_metadata(access.state, own.row, body.metadata))


@router.delete(
    '/conversations/{conversation}',
    summary='Delete a conversation',
    responses=_with_example(_deleted(_CONVERSATION['id'], 'conversation.deleted')),
)
async def delete_openai_conversation(conversation: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`. Deletes all responses of the conversation too."""
    own = await load_conversation(access, conversation)
    await delete_own_conversation(access, own)
    return _deleted(own.row.id, 'conversation.deleted')


@router.get(
    '/conversations/{conversation}/items', summary='List the items of a conversation', responses=_with_example(_ITEMS)
)
async def list_openai_conversation_items(
    conversation: str, access: Runner, order: _Order = 'desc', limit: _Limit = 20, after: _After = None
) -> dict[str, JsonValue]:
    """Requires the scope `run`. Lists the items up to the head of the conversation."""
    items = await conversation_items(access, await load_conversation(access, conversation))
    return page(items, order=order, after=after, limit=limit)
