"""The route of MCP. The package that answers it needs an extra, and is imported with the first request."""

from __future__ import annotations

import importlib.util
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.access._scopes import Require
from pydantic_deep.server.http._errors import ServerError

router = APIRouter(include_in_schema=False)

AnyKey = Annotated[Access, Depends(Require(None))]
"""The access of a caller with any key. Each tool requires its own scope."""


@router.post('/mcp')
async def answer_mcp(request: Request, access: AnyKey) -> Response:
    """Answer a message of MCP (streamable HTTP). Without sessions there is nothing to `GET` or `DELETE`."""
    if importlib.util.find_spec('mcp') is None:
        raise ServerError(
            'not_found',
            "This server does not offer MCP. It needs the extra: `pip install 'versioned-deep-agents[mcp]'`.",
        )
    from pydantic_deep.server.mcp._http import McpResponse, check_origin

    check_origin(access, request)
    return McpResponse(access)
