"""The transport of `/mcp`: streamable HTTP without sessions."""

from __future__ import annotations

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pydantic_deep.server.access._authentication import is_cross_origin
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError

from ._server import create_mcp_server


class McpResponse(Response):
    """The response to one message of a client: JSON-RPC, as an event stream if it takes time."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the message, and send its result.

        A manager for each request: nothing of a caller outlives the request, except the run that it may start.
        """
        manager = StreamableHTTPSessionManager(
            create_mcp_server(self._access),
            stateless=True,
            max_request_body_size=self._access.state.settings.max_body_bytes,
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)


def check_origin(access: Access, request: Request) -> None:
    """Refuse requests of foreign web pages, as the specification requires against DNS rebinding.

    `HostCheck` has already checked the `Host` header.

    Raises:
        ServerError: The origin is neither that of this server nor in the setting `cors_origins`.
    """
    origin = request.headers.get('origin')
    allowed = access.state.settings.cors_origins
    if origin is None or origin in allowed or '*' in allowed:
        return
    if is_cross_origin(request.headers):
        raise ServerError('forbidden', 'This web page may not call the server. Add its origin to `cors_origins`.')
