"""OpenAI's Responses API: responses are runs of agents.

The mapping is in the docstring of `compat._responses`; `_openai_conversations` has the conversations.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query
from pydantic import JsonValue
from starlette.responses import JSONResponse, Response

from pydantic_deep.server.compat._repetitions import Identity
from pydantic_deep.server.compat._response_items import build_response, input_items, page
from pydantic_deep.server.compat._response_objects import delete_response, load_response
from pydantic_deep.server.compat._response_requests import InputTokensRequest, ResponseRequest
from pydantic_deep.server.compat._response_turns import count_input_tokens, create_response, stream_response
from pydantic_deep.server.http._errors import describe_errors
from pydantic_deep.server.http._json_route import JsonRoute

from ._parameters import Runner
from ._turns import cancel_own_run

router = APIRouter(prefix='/v1', tags=['openai'], route_class=JsonRoute)

ERRORS = describe_errors('not_found', 'conflict', 'too_large', api='openai')
"""The errors of the routes, as OpenAI's clients expect them."""

_RESPONSE: dict[str, JsonValue] = {
    'id': 'resp_01a21f80-0d5e-7c9e-9d2b-7f6c0c6a1b12',
    'object': 'response',
    'created_at': 1795824000,
    'status': 'cancelled',
    'model': 'analyst',
    'output': [],
}

ITEMS: dict[str, JsonValue] = {
    'object': 'list',
    'data': [{'type': 'message', 'role': 'user', 'content': [{'type': 'input_text', 'text': 'Read sales.csv.'}]}],
    'has_more': False,
}
"""The example of a list of items."""


def deleted(id: JsonValue, kind: str) -> dict[str, JsonValue]:
    """Return the body of a deletion in OpenAI's format."""
    return {'id': id, 'object': kind, 'deleted': True}


def with_example(example: dict[str, JsonValue]) -> dict[int | str, dict[str, Any]]:
    """Return the responses of a route with an example of its result."""
    return {200: {'content': {'application/json': {'example': example}}}, **ERRORS}


Order = Annotated[Literal['asc', 'desc'], Query(description='The order of the items.')]
"""The order of a list of items."""

ItemLimit = Annotated[int, Query(ge=1, le=100, description='Maximum number of items in the page.')]
"""The maximum number of items of a page."""

After = Annotated[str | None, Query(description='The id of the last item of the previous page.', max_length=200)]
"""The last item of the previous page."""


@router.post(
    '/responses',
    summary='Create a response',
    response_class=Response,
    responses={200: {'description': 'A response, or events of it as server-sent events.'}, **ERRORS},
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


@router.post(
    '/responses/input_tokens',
    summary='Count the input tokens of a response',
    responses=with_example({'object': 'response.input_tokens', 'input_tokens': 2095}),
)
async def count_openai_input_tokens(
    body: Annotated[
        InputTokensRequest,
        Body(openapi_examples={'words': {'value': {'model': 'analyst', 'input': 'Read sales.csv.'}}}),
    ],
    access: Runner,
) -> dict[str, JsonValue]:
    """Requires the scope `run`. An estimate, as for the other APIs: a model's own tokenizer may count differently.

    The count of what the server knows includes the context that the agent has built. Otherwise it is that of the request,
    without the agent's own instructions and tools.
    """
    return {'object': 'response.input_tokens', 'input_tokens': await count_input_tokens(access, body)}


@router.get(
    '/responses/{response}',
    summary='Get a response',
    response_class=Response,
    responses={200: {'description': 'The response, or events of it as server-sent events.'}, **ERRORS},
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
    '/responses/{response}', summary='Delete a response', responses=with_example(deleted(_RESPONSE['id'], 'response'))
)
async def delete_openai_response(response: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`. Deletes the versions of the response. Later responses remain, and keep its messages."""
    own = await load_response(access, response)
    await delete_response(access, own)
    return deleted(own.row.id, 'response')


@router.post('/responses/{response}/cancel', summary='Cancel a response', responses=with_example(_RESPONSE))
async def cancel_openai_response(response: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`. Completed work is preserved. Cancelling a response that has ended has no effect."""
    own = await load_response(access, response)
    await cancel_own_run(access, own.run.id)
    return await build_response(access, await load_response(access, response))


@router.get(
    '/responses/{response}/input_items', summary='List the input items of a response', responses=with_example(ITEMS)
)
async def list_openai_input_items(
    response: str, access: Runner, order: Order = 'desc', limit: ItemLimit = 20, after: After = None
) -> dict[str, JsonValue]:
    """Requires the scope `run`. Lists the items of the request, without those of earlier responses."""
    items = await input_items(access, await load_response(access, response))
    return page(items, order=order, after=after, limit=limit)
