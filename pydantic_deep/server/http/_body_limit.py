"""Middleware for the length of bodies: a maximum size, and the refusal of ambiguous lengths.

Starlette's own limit applies only when a route reads the body. This one refuses before the route runs, in the format of
the API, and closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._errors import ServerError, api_of, path_of, render_error

DRAINED_BYTES = 64 * 2**10
"""The maximum unread rest of a body that is drained. With a larger rest, the connection is closed."""


class AmbiguousLengthCheck:
    """ASGI middleware that refuses requests with both Content-Length and Transfer-Encoding, and closes the connection.

    If a proxy uses one header and this server the other, one of them reads a second request where the other reads a
    body (RFC 9112, section 6.1). h11 accepts such requests; httptools refuses them itself.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'http':
            headers = Headers(scope=scope)
            if 'content-length' in headers and 'transfer-encoding' in headers:
                error = ServerError('invalid', 'A request cannot have both Content-Length and Transfer-Encoding.')
                response = render_error(error, api_of(path_of(scope)))
                response.status_code = 400
                response.headers['connection'] = 'close'
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


class BodyLimit:
    """ASGI middleware that refuses large bodies: by announced length before the route runs, otherwise on receipt.

    Args:
        app: The wrapped application.
        limit_for: Returns the maximum size of a body in bytes, by method and path.
    """

    def __init__(self, app: ASGIApp, limit_for: Callable[[str, str], int]) -> None:
        self._app = app
        self._limit_for = limit_for

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return
        body = _RequestBody(receive, send, Headers(scope=scope), self._limit_for(scope['method'], path_of(scope)))
        if body.announced > body.limit:
            await render_error(body.too_large(), api_of(path_of(scope)))(scope, receive, body.send)
            return
        await self._app(scope, body.receive, body.send)


class _RequestBody:
    """The body of one request while it arrives."""

    def __init__(self, receive: Receive, send: Send, headers: Headers, limit: int) -> None:
        length = headers.get('content-length', '')
        self.announced = int(length) if length.isascii() and length.isdigit() else 0
        self.limit = limit
        self._is_chunked = 'transfer-encoding' in headers
        self._is_whole = False
        self._received = 0
        self._receive = receive
        self._send = send

    def too_large(self) -> ServerError:
        return ServerError('too_large', f'The body is larger than {self.limit} bytes, the maximum for this path.')

    async def receive(self) -> Message:
        message = await self._receive()
        if message['type'] == 'http.request':
            self._received += len(message.get('body', b''))
            self._is_whole = not message.get('more_body', False)
            if self._received > self.limit:
                raise self.too_large()
        return message

    async def send(self, message: Message) -> None:
        if message['type'] == 'http.response.start' and not self._is_whole:
            left = self.announced - self._received
            if self._is_chunked or left > DRAINED_BYTES:
                MutableHeaders(scope=message)['connection'] = 'close'
        await self._send(message)
