"""Authentication by API key, as middleware.

Without a valid key, every path answers 401 before the body is read, whether or not a route exists. The exceptions are
the paths for which `is_public` returns true.
"""

from __future__ import annotations

from contextlib import suppress
from math import ceil
from typing import cast

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_deep.repository import RepositoryClosedError, RepositoryUnavailableError
from pydantic_deep.server._api_keys import ApiKey
from pydantic_deep.server._state import ServerState, state_in
from pydantic_deep.server.http._errors import ServerError, api_of, path_of, render_error
from pydantic_deep.store import StoreClosedError, StoreUnavailableError

UNAVAILABLE_ERRORS = (StoreUnavailableError, StoreClosedError, RepositoryUnavailableError, RepositoryClosedError)
"""The errors of an unreachable database."""


PROBES = ('/healthz', '/readyz')
"""The paths for probes and load balancers, which can send neither a key nor a host name of their own."""


def is_public(path: str) -> bool:
    """Return whether a path needs no key: the page, its static files, and the health checks."""
    return path in ('/', '/health', *PROBES) or path.startswith('/static/')


class HostCheck(TrustedHostMiddleware):
    """ASGI middleware that refuses unknown host names, except on the paths for probes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'http' and path_of(scope) in PROBES:
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class Authentication:
    """ASGI middleware that checks the key and its rate limit, and sets `request.state.key`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http' or is_public(path_of(scope)):
            await self._app(scope, receive, send)
            return
        state = state_in(scope)
        try:
            scope.setdefault('state', {})['key'] = await _authenticate(state, scope)
        except ServerError as error:
            await render_error(error, api_of(path_of(scope)))(scope, receive, send)
            return
        try:
            await self._app(scope, receive, _KeyCheckedSend(state, _key_in(scope), send).send)
        except _KeyExpiredError:
            await send({'type': 'http.response.body', 'body': b'', 'more_body': False})


class _KeyExpiredError(Exception):
    """A key was revoked or expired during a response."""


class _KeyCheckedSend:
    """Checks the key again while a response is streamed, so that a stream ends when its key becomes invalid.

    The key is checked when data is sent, at most once per keep-alive interval. Responses in a single message are not
    interrupted.
    """

    def __init__(self, state: ServerState, secret: str, send: Send) -> None:
        self._state = state
        self._secret = secret
        self._send = send
        self._checked_at = anyio.current_time()

    async def send(self, message: Message) -> None:
        if message.get('more_body', False) and self._is_due():
            with suppress(*UNAVAILABLE_ERRORS):  # checked again with the next message
                if await self._state.keys.find(self._secret) is None:
                    raise _KeyExpiredError
        await self._send(message)

    def _is_due(self) -> bool:
        now = anyio.current_time()
        if now - self._checked_at < self._state.settings.keepalive_seconds:
            return False
        self._checked_at = now
        return True


async def _authenticate(state: ServerState, scope: Scope) -> ApiKey:
    secret = _key_in(scope)
    try:
        key = await state.keys.find(secret)
    except UNAVAILABLE_ERRORS:
        raise ServerError('unavailable', headers={'Retry-After': '5'}) from None
    if key is None:
        client = cast('tuple[str, int] | None', scope.get('client'))
        wait = state.wrong_keys.take(client[0] if client else '') if secret else 0
        if wait > 0:
            message = 'Too many wrong keys from this address. Wait for the time given in `Retry-After`.'
            raise ServerError('rate_limited', message, headers={'Retry-After': str(ceil(wait))})
        raise ServerError('unauthenticated')
    wait = state.rate.take(key.id)
    if wait > 0:
        raise ServerError('rate_limited', headers={'Retry-After': str(ceil(wait))})
    return key


def _key_in(scope: Scope) -> str:
    """Return the key of a request, or an empty string if there is none."""
    headers = Headers(scope=scope)
    kind, _, token = headers.get('authorization', '').partition(' ')
    if kind.lower() == 'bearer':
        return token.strip()
    return headers.get('x-api-key') or headers.get('x-goog-api-key') or ''


class KeyInQuery:
    """ASGI middleware that moves `?key=`, which Google's clients may send, to the header `x-goog-api-key`.

    It changes the scope itself, because servers write their access logs from it and the key must not appear there.
    Paths of other APIs do not accept a key in the query.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'http' and api_of(path_of(scope)) == 'google':
            fields = cast('bytes', scope['query_string']).split(b'&')
            sent = [field for field in fields if field.startswith(b'key=')]
            scope['query_string'] = b'&'.join(field for field in fields if field not in sent)
            headers = MutableHeaders(scope=scope)
            for field in sent:
                headers.setdefault('x-goog-api-key', field[len(b'key=') :].decode('latin-1'))
        await self._app(scope, receive, send)
