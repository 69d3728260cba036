"""The API of Google: its clients use an agent as if it were a model, like those of OpenAI and Anthropic."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import JsonValue
from starlette.responses import Response

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.compat._google import (
    CountTokensRequest,
    GenerateContentRequest,
    parse_count_request,
    parse_google_request,
)
from pydantic_deep.server.compat._repetitions import Identity, start_or_join
from pydantic_deep.server.compat._token_count import count_tokens
from pydantic_deep.server.compat._turns import CompatTurn
from pydantic_deep.server.http._errors import ServerError, describe_errors
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.streaming import GoogleEncoder, google_response

from ._parameters import Runner

router = APIRouter(route_class=JsonRoute)

_ERRORS = describe_errors('not_found', 'conflict', 'too_large', api='google')


def _example(example: dict[str, JsonValue]) -> dict[int | str, dict[str, object]]:
    return {200: {'content': {'application/json': {'example': example}}}}


def google_model(name: str) -> dict[str, JsonValue]:
    """Return an agent as a model in Google's format."""
    methods: list[JsonValue] = ['generateContent', 'streamGenerateContent', 'countTokens']
    return {'name': f'models/{name}', 'displayName': name, 'supportedGenerationMethods': methods}


@router.get(
    '/v1beta/models',
    tags=['google'],
    summary='List the agents as models',
    responses={**_example({'models': [google_model('analyst')]}), **_ERRORS},
)
async def list_google_models(access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`."""
    return {'models': [google_model(name) for name in sorted(access.state.agents) if access.may_use(name)]}


@router.get(
    '/v1beta/models/{agent}',
    tags=['google'],
    summary='Get an agent as a model',
    responses={**_example(google_model('analyst')), **_ERRORS},
)
async def read_google_model(agent: str, access: Runner) -> dict[str, JsonValue]:
    """Requires the scope `run`."""
    access.model(agent)
    return google_model(agent)


async def _start_google_turn(
    access: Access, agent: str, body: GenerateContentRequest, identity: Identity
) -> CompatTurn:
    session_id, dialogue = body.labels.get('session_id'), parse_google_request(body)
    return await start_or_join(access, agent, dialogue, session_id=session_id, identity=identity)


def _has_thoughts(body: GenerateContentRequest) -> bool:
    return body.generation_config.thinking_config.include_thoughts


_GOOGLE_BODY = Body(
    openapi_examples={'words': {'value': {'contents': [{'role': 'user', 'parts': [{'text': 'Read sales.csv.'}]}]}}}
)


@router.post('/v1/models/{agent}:generateContent', include_in_schema=False)
@router.post(
    '/v1beta/models/{agent}:generateContent',
    tags=['google'],
    summary='Continue a dialogue',
    response_class=Response,
    responses={200: {'description': 'A response.'}, **_ERRORS},
)
async def generate_content(
    agent: str, body: Annotated[GenerateContentRequest, _GOOGLE_BODY], access: Runner, identity: Identity
) -> Response:
    """Requires the scope `run`; for decisions, also `approve`."""
    turn = await _start_google_turn(access, agent, body, identity)
    return await turn.respond(partial(google_response, model=agent, tool_calls=True, thinking=_has_thoughts(body)))


@router.post('/v1/models/{agent}:streamGenerateContent', include_in_schema=False)
@router.post(
    '/v1beta/models/{agent}:streamGenerateContent',
    tags=['google'],
    summary='Continue a dialogue, streamed',
    response_class=Response,
    responses={200: {'description': 'Responses as server-sent events.'}, **_ERRORS},
)
async def stream_generate_content(
    agent: str,
    body: Annotated[GenerateContentRequest, _GOOGLE_BODY],
    access: Runner,
    identity: Identity,
    alt: str = 'sse',
) -> Response:
    """Requires the scope `run`; for decisions, also `approve`. Only `alt=sse`, which the clients use, is supported."""
    if alt != 'sse':
        raise ServerError(
            'invalid', f'`alt` is {alt[:80]!r}, but responses are streamed as server-sent events. Send `alt=sse`.'
        )
    turn = await _start_google_turn(access, agent, body, identity)
    thinking = _has_thoughts(body)
    build_body = partial(google_response, model=agent, tool_calls=True, thinking=thinking)
    return await turn.stream(GoogleEncoder(model=agent, tool_calls=True, thinking=thinking), build_body)


@router.post('/v1/models/{agent}:countTokens', include_in_schema=False)
@router.post(
    '/v1beta/models/{agent}:countTokens',
    tags=['google'],
    summary='Count the tokens of a request',
    responses={**_example({'totalTokens': 2095}), **_ERRORS},
)
async def count_content_tokens(
    agent: str,
    body: Annotated[
        CountTokensRequest,
        Body(
            openapi_examples={
                'words': {'value': {'contents': [{'role': 'user', 'parts': [{'text': 'Read sales.csv.'}]}]}}
            }
        ),
    ],
    access: Runner,
) -> dict[str, JsonValue]:
    """Requires the scope `run`. An estimate: a model's own tokenizer may count differently.

    A dialogue that the server knows includes the context that the agent has built. Otherwise the count is that of the
    request, without the agent's own instructions and tools.
    """
    return {'totalTokens': await count_tokens(access, agent, parse_count_request(body), session_id=None)}
