"""The routes of A2A. The package that answers them needs an extra, and is imported with the first request."""

from __future__ import annotations

import importlib.util
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from pydantic_deep.server.http._errors import ServerError, describe_errors
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.http._mounting import base_url

from ._parameters import Runner

router = APIRouter(tags=['a2a'], route_class=JsonRoute)

CARD: Final = '/.well-known/agent-card.json'
"""The path of a card below the URL of an agent (RFC 8615)."""

_MESSAGE: Final = {
    'type': 'object',
    'description': 'A message of JSON-RPC 2.0. Which ones A2A has: a2a-protocol.org/latest/specification.',
    'properties': {'jsonrpc': {'const': '2.0'}, 'id': {'type': ['string', 'integer', 'null']}},
    'required': ['jsonrpc'],
}
_REQUEST: Final = {'description': 'A request of JSON-RPC 2.0. Anything else is answered with an error of JSON-RPC too.'}
_GET: Final = {'jsonrpc': '2.0', 'id': 1, 'method': 'GetTask', 'params': {'id': '01997b2c-0000-7000-8000-000000000000'}}
_RESULT: Final[dict[str, Any]] = {
    'jsonrpc': '2.0',
    'id': 1,
    'result': {'id': '01997b2c-0000-7000-8000-000000000000', 'status': {'state': 'TASK_STATE_COMPLETED'}},
}
_OK: Final[dict[str, Any]] = {
    'description': 'The result or the error, or a stream of results.',
    'content': {
        'application/json': {'schema': _MESSAGE, 'example': _RESULT},
        'text/event-stream': {'schema': {'type': 'string'}, 'example': 'data: {"jsonrpc": "2.0", "id": 1, …}\n\n'},
    },
}
_CARD: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        'description': 'The card of the agent.',
        'content': {'application/json': {'schema': {'type': 'object'}, 'example': {'name': 'analyst', 'skills': []}}},
    },
    **describe_errors('not_found'),
}


@router.get(CARD, summary='Get the card of the only agent', response_class=Response, responses=_CARD)
async def read_only_agent_card(request: Request, access: Runner) -> Response:
    """For callers who may use one agent. If there are several, the error names the paths of their cards."""
    _require_extra()
    from pydantic_deep.server.a2a._card import build_card, only_agent

    return JSONResponse(await build_card(access, only_agent(access), base_url(request)))


@router.get('/a2a/{agent}' + CARD, summary='Get the card of an agent', response_class=Response, responses=_CARD)
async def read_agent_card(agent: str, request: Request, access: Runner) -> Response:
    """The card has the name, the description and the skills of the agent."""
    _require_extra()
    from pydantic_deep.server.a2a._card import build_card

    return JSONResponse(await build_card(access, agent, base_url(request)))


@router.post(
    '/a2a/{agent}',
    summary='Send a message of A2A',
    response_class=Response,
    responses={200: _OK, **describe_errors('not_found', 'too_large')},
    openapi_extra={
        'requestBody': {'required': True, 'content': {'application/json': {'schema': _REQUEST, 'example': _GET}}}
    },
)
async def answer_a2a(agent: str, request: Request, access: Runner) -> Response:
    """Answer a message of A2A 1.0 or 0.3 (JSON-RPC). Decisions on pending calls also require the scope `approve`."""
    _require_extra()
    from pydantic_deep.server.a2a._handler import AgentHandler
    from pydantic_deep.server.a2a._rpc import answer_request

    access.agent(agent)
    shutdown_seconds = access.state.settings.shutdown_seconds
    return await answer_request(request, AgentHandler(access, agent), shutdown_seconds=shutdown_seconds)


def _require_extra() -> None:
    """Refuse requests if the extra is missing.

    Raises:
        ServerError: It is not installed.
    """
    if importlib.util.find_spec('a2a') is None:
        raise ServerError(
            'not_found',
            "This server does not offer A2A. It needs the extra: `pip install 'versioned-deep-agents[a2a]'`.",
        )
