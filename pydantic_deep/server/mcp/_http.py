"""The transport of `/mcp`: streamable HTTP, without sessions for clients that need none."""

from __future__ import annotations

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from pydantic_deep.server.access._authentication import is_cross_origin
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError

from ._server import create_mcp_server
from ._sessions import find_session, is_for_session, needs_session, open_session, parse_message


class McpResponse(Response):
    """The response to one message of a client: JSON-RPC, as an event stream if it takes time."""

    def __init__(self, access: Access, request: Request) -> None:
        super().__init__()
        self._access = access
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the message, and send its result."""
        request = self._request
        try:
            body = await request.body()
        except ClientDisconnect:  # nobody receives a response
            return
        receive = _Replay(body, receive).receive
        session = find_session(self._access, request)
        if session is None:
            message = parse_message(body)
            if is_for_session(request, message):
                raise ServerError('not_found', 'This session has ended. Call the tool again.')
            if needs_session(request, message):
                session = await open_session(self._access, create_mcp_server(self._access))
        answer = self._answer_alone if session is None else session.handle
        await answer(scope, receive, send)

    async def _answer_alone(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request without a session: nothing of a caller outlives it, except the run that it may start."""
        manager = StreamableHTTPSessionManager(
            create_mcp_server(self._access),
            stateless=True,
            max_request_body_size=self._access.state.settings.max_body_bytes,
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)


class _Replay:
    """Returns a body that has been read, and then what the client sends after it: that it has disconnected."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def receive(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {'type': 'http.request', 'body': body, 'more_body': False}


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
    if is_cross_origin(request.headers, request.url.scheme):
        raise ServerError('forbidden', 'This web page may not call the server. Add its origin to `cors_origins`.')
