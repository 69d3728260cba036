"""The route of MCP. The package that answers it needs an extra, and is imported with the first request."""

from __future__ import annotations

import importlib.util
import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.access._scopes import Require
from pydantic_deep.server.http._errors import ServerError, describe_errors

router = APIRouter(tags=['mcp'])

AnyKey = Annotated[Access, Depends(Require(None))]
"""The access of a caller with any key. Each tool requires its own scope."""

_MESSAGE: Final = {
    'type': 'object',
    'description': 'A message of JSON-RPC 2.0. Which ones MCP has: modelcontextprotocol.io/specification.',
    'properties': {'jsonrpc': {'const': '2.0'}, 'id': {'type': ['string', 'integer', 'null']}},
    'required': ['jsonrpc'],
}
_PING: Final = {'jsonrpc': '2.0', 'id': 1, 'method': 'ping'}
_REFUSED: Final[dict[str, Any]] = {'jsonrpc': '2.0', 'id': None, 'error': {'code': -32600, 'message': 'Not Acceptable'}}
_RESULT: Final[dict[str, Any]] = {'jsonrpc': '2.0', 'id': 1, 'result': {}}


def _answered(description: str, example: object = _REFUSED) -> dict[str, Any]:
    return {'description': description, 'content': {'application/json': {'schema': _MESSAGE, 'example': example}}}


_OK: Final = _answered('The result, as the only event of a stream or after others.', _RESULT)
_OK['content']['text/event-stream'] = {'schema': {'type': 'string'}, 'example': f'data: {json.dumps(_RESULT)}\n\n'}


@router.post(
    '/mcp',
    summary='Send a message of MCP',
    response_class=Response,
    responses={
        200: _OK,
        202: {'description': 'The message needs no result.'},
        **describe_errors('not_found', 'too_large'),
        400: _answered('It is no message of MCP.'),
        406: _answered('The client does not accept `application/json` and `text/event-stream`.'),
        415: _answered('The body is not JSON.'),
    },
    openapi_extra={
        'requestBody': {'required': True, 'content': {'application/json': {'schema': _MESSAGE, 'example': _PING}}}
    },
)
async def answer_mcp(request: Request, access: AnyKey) -> Response:
    """Answer a message of MCP (streamable HTTP). There is no stream to `GET`, and sessions end by themselves."""
    if importlib.util.find_spec('mcp') is None:
        raise ServerError(
            'not_found',
            "This server does not offer MCP. It needs the extra: `pip install 'versioned-deep-agents[mcp]'`.",
        )
    from pydantic_deep.server.mcp._http import McpResponse, check_origin

    check_origin(access, request)
    return McpResponse(access, request)
