"""What bounds a request: how large, how often, from where. Layers of plain ASGI, so that streams pass untouched.

Hosts and origins are checked by Starlette's `TrustedHostMiddleware` and `CORSMiddleware`. Starlette's limit of bodies
is not used: it refuses when somebody reads, and this one before anything runs, in the form of the API, and closes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._errors import ServerError, api_of, path_of, render_error

DRAINED_BYTES = 64 * 2**10
"""A body that nobody read and that is larger ends the connection: a server would take all of it from the network."""


@dataclass(kw_only=True)
class RateLimit:
    """How often each key may ask: a bucket that fills steadily, and a token for each request.

    It holds two numbers for each key that was used since the start.
    """

    per_second: float
    """How many tokens come into a bucket each second."""
    burst: int
    """How many it holds."""
    clock: Callable[[], float]
    """Seconds that never go back."""
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]], repr=False)
    """By key: how many tokens there were, and when."""

    def take(self, key: str) -> float:
        """Take a token, and return 0; where there is none, return after how many seconds there will be."""
        now = self.clock()
        tokens, at = self._buckets.get(key, (float(self.burst), now))
        tokens = min(self.burst, tokens + (now - at) * self.per_second)
        if tokens < 1:
            self._buckets[key] = tokens, now
            return (1 - tokens) / self.per_second
        self._buckets[key] = tokens - 1, now
        return 0.0


class BodyLimit:
    """An ASGI layer that refuses bodies that are too large: before anything runs by what they say, else as they come.

    Args:
        app: What is inside.
        limit_for: Returns how many bytes the body of a request may have, by method and path.
    """

    def __init__(self, app: ASGIApp, limit_for: Callable[[str, str], int]) -> None:
        self._app = app
        self._limit_for = limit_for

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return
        body = _Body(receive, send, Headers(scope=scope), self._limit_for(scope['method'], path_of(scope)))
        if body.announced > body.limit:
            await render_error(body.too_large(), api_of(path_of(scope)))(scope, receive, body.send)
            return
        await self._app(scope, body.receive, body.send)


class _Body:
    """The body of one request while it comes."""

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
        return ServerError('too_large', f'The body is larger than {self.limit} bytes, which is what this path takes.')

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
