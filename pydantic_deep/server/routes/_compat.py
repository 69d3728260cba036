"""The chat APIs of OpenAI and Anthropic: their clients use an agent as if it were a model. So do those of Google.

The activity of the agent's own tools is not exposed. A function that a client declares is called as in each API, and a
pending approval is a call of `approval_required`, whose result is the decision.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import JsonValue
from starlette.responses import Response

from pydantic_deep.server.compat._anthropic import MessagesRequest, anthropic_session_id, parse_anthropic_request
from pydantic_deep.server.compat._openai import ChatCompletionRequest, openai_session_id, parse_openai_request
from pydantic_deep.server.compat._repetitions import Identity, start_or_join
from pydantic_deep.server.compat._token_count import count_tokens
from pydantic_deep.server.http._errors import Api, describe_errors
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.streaming import (
    AnthropicEncoder,
    OpenaiEncoder,
    anthropic_message,
    openai_completion,
)

from ._google import google_model
from ._parameters import Runner

router = APIRouter(route_class=JsonRoute)


_MODELS_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
"""Creation time of every model, which clients require."""


def _errors(api: Api) -> dict[int | str, dict[str, object]]:
    return describe_errors('not_found', 'conflict', 'too_large', api=api)


def _example(example: dict[str, JsonValue]) -> dict[int | str, dict[str, object]]:
    return {200: {'content': {'application/json': {'example': example}}}}


def _model(name: str) -> dict[str, JsonValue]:
    """Return an agent as a model, with the fields of all three APIs: their clients call the same routes."""
    return {
        'id': name,
        'object': 'model',
        'created': int(_MODELS_SINCE.timestamp()),
        'owned_by': 'pydantic-deep',
        'type': 'model',
        'display_name': name,
        'created_at': _MODELS_SINCE.isoformat(),
        **google_model(name),
    }


_USER_MESSAGE = {'role': 'user', 'content': 'Read sales.csv.'}


@router.get(
    '/v1/models',
    tags=['openai'],
    summary='List the agents as models',
    responses={**_example({'object': 'list', 'data': [_model('analyst')]}), **_errors('openai')},
)
async def list_openai_models(access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`. The list has the fields of OpenAI, Anthropic and Google."""
    models = [_model(name) for name in sorted(access.state.agents) if access.may_use(name)]
    return {'object': 'list', 'data': [*models], 'has_more': False, 'models': [*models]}


@router.get(
    '/v1/models/{agent}',
    tags=['openai'],
    summary='Get an agent as a model',
    responses={**_example(_model('analyst')), **_errors('openai')},
)
async def read_openai_model(agent: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`."""
    access.model(agent)
    return _model(agent)


@router.post(
    '/v1/chat/completions',
    tags=['openai'],
    summary='Continue a dialogue',
    response_class=Response,
    responses={
        200: {'description': 'A chat completion, or chunks of it as server-sent events.'},
        **_errors('openai'),
    },
)
async def create_chat_completion(
    body: Annotated[
        ChatCompletionRequest,
        Body(openapi_examples={'words': {'value': {'model': 'analyst', 'messages': [_USER_MESSAGE]}}}),
    ],
    access: Runner,
    identity: Identity,
) -> Response:
    """Requires the scope `run`; for decisions, also `approve`. `model` is the name of an agent."""
    session_id, dialogue = openai_session_id(body), parse_openai_request(body)
    turn = await start_or_join(access, body.model, dialogue, session_id=session_id, identity=identity)
    build_body = partial(openai_completion, model=body.model, tool_calls=True)
    if not body.stream:
        return await turn.respond(build_body)
    include_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    encoder = OpenaiEncoder(model=body.model, include_usage=include_usage, tool_calls=True)
    return await turn.stream(encoder, build_body)


@router.post(
    '/v1/messages',
    tags=['anthropic'],
    summary='Continue a dialogue',
    response_class=Response,
    responses={200: {'description': 'A message, or events of it as server-sent events.'}, **_errors('anthropic')},
)
async def create_message(
    body: Annotated[
        MessagesRequest,
        Body(
            openapi_examples={'words': {'value': {'model': 'analyst', 'max_tokens': 4096, 'messages': [_USER_MESSAGE]}}}
        ),
    ],
    access: Runner,
    identity: Identity,
) -> Response:
    """Requires the scope `run`; for decisions, also `approve`. `model` is the name of an agent."""
    session_id, dialogue = anthropic_session_id(body), parse_anthropic_request(body)
    turn = await start_or_join(access, body.model, dialogue, session_id=session_id, identity=identity)
    build_body = partial(anthropic_message, model=body.model, tool_calls=True, thinking=body.has_thinking)
    if not body.stream:
        return await turn.respond(build_body)
    return await turn.stream(
        AnthropicEncoder(model=body.model, tool_calls=True, thinking=body.has_thinking), build_body
    )


@router.post(
    '/v1/messages/count_tokens',
    tags=['anthropic'],
    summary='Count the tokens of a request',
    responses={**_example({'input_tokens': 2095}), **_errors('anthropic')},
)
async def count_message_tokens(
    body: Annotated[
        MessagesRequest, Body(openapi_examples={'words': {'value': {'model': 'analyst', 'messages': [_USER_MESSAGE]}}})
    ],
    access: Runner,
) -> dict[str, JsonValue]:
    """Requires the scope `run`. An estimate: a model's own tokenizer may count differently.

    A dialogue that the server knows includes the context that the agent has built. Otherwise the count is that of the
    request, without the agent's own instructions and tools.
    """
    dialogue = parse_anthropic_request(body, continues=False)
    return {'input_tokens': await count_tokens(access, body.model, dialogue, session_id=anthropic_session_id(body))}
