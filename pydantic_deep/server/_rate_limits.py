"""What bounds a request: how large, how often, from where. Layers of plain ASGI, so that streams pass untouched.

Hosts and origins are checked by Starlette's `TrustedHostMiddleware` and `CORSMiddleware`. Starlette's limit of bodies
is not used: it refuses when somebody reads, and this one before anything runs, in the form of the API, and closes.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import IPv4Address, ip_address, ip_network

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .http._errors import ServerError, api_of, path_of, render_error

DRAINED_BYTES = 64 * 2**10
"""A body that nobody read and that is larger ends the connection: a server would take all of it from the network."""


WRONG_KEY_BUCKETS = 8192
"""How many buckets there are for addresses that send wrong keys: 128 KiB in all."""


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


class WrongKeyLimit:
    """How often an address may send a key that is wrong: a bucket as in `RateLimit`, in a table of constant size.

    Addresses share a bucket where their keyed hashes collide. Keys that are right are never refused by it, because
    several people may be behind one address.

    Args:
        per_minute: How many tokens come into a bucket each minute.
        burst: How many it holds.
        clock: Seconds that never go back.
    """

    def __init__(self, *, per_minute: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_minute / 60
        self._burst = burst
        self._clock = clock
        self._secret = secrets.token_bytes(16)  # so that nobody can aim at the bucket of another
        self._tokens = array('d', [burst]) * WRONG_KEY_BUCKETS
        self._at = array('d', [clock()]) * WRONG_KEY_BUCKETS

    def take(self, address: str) -> float:
        """Take a token for an address, and return 0; where there is none, return after how many seconds there will be."""
        digest = blake2b(_network_of(address).encode(), key=self._secret, digest_size=4).digest()
        place, now = int.from_bytes(digest) % WRONG_KEY_BUCKETS, self._clock()
        tokens = min(self._burst, self._tokens[place] + (now - self._at[place]) * self._per_second)
        self._at[place] = now
        self._tokens[place] = tokens if tokens < 1 else tokens - 1
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_second


def _network_of(address: str) -> str:
    """Return what one client is likely to have of addresses: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        parsed = ip_address(address)
    except ValueError:  # no IP address, such as that of a Unix socket
        return address
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ip_network((int(parsed), 64), strict=False))


class RefuseAmbiguousLength:
    """An ASGI layer that refuses requests with both Content-Length and Transfer-Encoding, and closes the connection.

    A proxy may believe one and this server the other, so that one reads a second request where the other reads a body
    (RFC 9112, section 6.1). h11 passes both headers on; httptools refuses such a request by itself.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'http':
            headers = Headers(scope=scope)
            if 'content-length' in headers and 'transfer-encoding' in headers:
                error = ServerError('invalid', 'A request has Content-Length or Transfer-Encoding, and not both.')
                response = render_error(error, api_of(path_of(scope)))
                response.status_code = 400
                response.headers['connection'] = 'close'
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


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
