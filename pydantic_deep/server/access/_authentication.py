"""Authentication by the login of a host application or by API key, as middleware.

Without either, every path answers 401 before the body is read, whether or not a route exists. The exceptions are the
paths for which `is_public` returns true.

A browser sends cookies with requests of other sites too, so a user of the host application can change something only
from this origin (`is_cross_origin`). Requests with a key need no such check, because browsers do not send keys unasked.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from typing import Final, cast

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_deep.repository import RepositoryClosedError, RepositoryUnavailableError
from pydantic_deep.server._state import ServerState, state_in
from pydantic_deep.server.http._errors import ServerError, api_of, path_of, refuse_http, render_error
from pydantic_deep.store import StoreClosedError, StoreUnavailableError

from ._identity import (
    Caller,
    Identity,
    InvalidLoginError,
    Login,
    caller_of_host,
    caller_with_key,
)

UNAVAILABLE_ERRORS = (StoreUnavailableError, StoreClosedError, RepositoryUnavailableError, RepositoryClosedError)
"""The errors of an unreachable database."""


PROBES = ('/healthz', '/readyz')
"""The paths for probes and load balancers, which can send neither a key nor a host name of their own."""


SAFE_METHODS: Final = frozenset({'GET', 'HEAD', 'OPTIONS'})
"""The methods that change nothing (RFC 9110, section 9.2.1)."""

CROSS_ORIGIN: Final = (
    'Requests of other origins can only read with the login of this application. Send an API key as '
    '`Authorization: Bearer KEY`.'
)
"""The message for a request of another origin that would change something."""

LOGIN_REQUIRED: Final = (
    'This requires a login of the application around this server, or a valid API key. Log in, or send the key as '
    '`Authorization: Bearer KEY`.'
)
"""The message for a request without a login and without a key."""

_UNKNOWN_HOST: Final = (
    'This server does not accept this host name. Its operator names the accepted ones in the setting `allowed_hosts`.'
)

_CALLER: Final = 'pydantic_deep.caller'
"""The key of the caller in the scope. Names without a prefix could be those of a host application."""


def caller_in(scope: Scope) -> Caller:
    """Return the sender of an authenticated request."""
    return scope[_CALLER]


def is_cross_origin(headers: Headers, scheme: str) -> bool:
    """Return whether a browser sent a request for a page of another origin, such as another host, scheme or port.

    A page with `https:` is of this origin even if the request has the scheme `http`: a proxy may have decrypted it.

    Browsers send `Sec-Fetch-Site` with HTTPS and to the same machine, and `Origin` with every method that changes
    something. Other clients send neither, and no cookies of people. This is the rule of `CrossOriginProtection` in Go's
    `net/http`.
    """
    site, origin = headers.get('sec-fetch-site'), headers.get('origin')
    if site is not None:
        return site not in ('same-origin', 'none')
    host = headers.get('host')
    return origin is not None and origin not in (f'{scheme}://{host}', f'https://{host}')


def is_public(path: str) -> bool:
    """Return whether a path needs no key: the page, its static files, and the health checks."""
    return path in ('/', '/health', *PROBES) or path.startswith('/static/')


class HostCheck:
    """ASGI middleware that refuses unknown host names, except on the paths for probes."""

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str]) -> None:
        self._app = app
        self._check = TrustedHostMiddleware(_accept, allowed_hosts, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (scope['type'] == 'http' and path_of(scope) in PROBES) or await self._accepts(scope, receive):
            await self._app(scope, receive, send)
            return
        refusal = render_error(ServerError('invalid', _UNKNOWN_HOST), api_of(path_of(scope)))
        refusal.status_code = 400
        await refusal(scope, receive, send)

    async def _accepts(self, scope: Scope, receive: Receive) -> bool:
        messages: list[Message] = []

        async def note(message: Message) -> None:
            messages.append(message)

        await self._check(scope, receive, note)  # which sends a refusal, or calls an application that sends nothing
        return not messages


async def _accept(scope: Scope, receive: Receive, send: Send) -> None:
    pass


class Authentication:
    """ASGI middleware that authenticates requests, applies the rate limit, and provides `caller_in`.

    Args:
        app: The application.
        login: The login of the host application; `None` if only keys are accepted.
    """

    def __init__(self, app: ASGIApp, login: Login | None = None) -> None:
        self._app = app
        self._login = login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http' or is_public(path_of(scope)):
            await self._app(scope, receive, send)
            return
        state = state_in(scope)
        try:
            caller = scope[_CALLER] = await self._authenticate(state, scope)
        except ServerError as error:
            await render_error(error, api_of(path_of(scope)))(scope, receive, send)
            return
        try:
            await self._app(
                scope, receive, _CheckedSend(state, partial(self._is_valid, state, scope, caller), send).send
            )
        except _AccessEndedError:
            await send({'type': 'http.response.body', 'body': b'', 'more_body': False})

    async def _authenticate(self, state: ServerState, scope: Scope) -> Caller:
        identity = await _identify(self._login, scope)
        if identity is None:
            return await _find_key(state, scope, self._login)
        if scope['method'] not in SAFE_METHODS and is_cross_origin(Headers(scope=scope), scope['scheme']):
            raise ServerError('forbidden', CROSS_ORIGIN)
        caller = caller_of_host(identity, self._login and self._login.logout_url)
        _take(state, caller)
        return caller

    async def _is_valid(self, state: ServerState, scope: Scope, caller: Caller) -> bool:
        """Return whether a caller still has the same access."""
        if caller.has_key:
            return await state.keys.find(_key_in(scope)) is not None
        return await _identify(self._login, scope) == caller.identity


class _AccessEndedError(Exception):
    """A key was revoked or expired, or a login ended, during a response."""


class _CheckedSend:
    """Checks the caller again while a response is streamed, so that a stream ends when the key or login does.

    The caller is checked when data is sent, at most once per keep-alive interval. Responses in a single message are not
    interrupted.
    """

    def __init__(self, state: ServerState, is_valid: Callable[[], Awaitable[bool]], send: Send) -> None:
        self._state = state
        self._is_valid = is_valid
        self._send = send
        self._checked_at = anyio.current_time()

    async def send(self, message: Message) -> None:
        if message.get('more_body', False) and self._is_due():
            with suppress(*UNAVAILABLE_ERRORS):  # checked again with the next message
                if not await self._is_valid():
                    raise _AccessEndedError
        await self._send(message)

    def _is_due(self) -> bool:
        now = anyio.current_time()
        if now - self._checked_at < self._state.settings.keepalive_seconds:
            return False
        self._checked_at = now
        return True


async def _identify(login: Login | None, scope: Scope) -> Identity | None:
    """Return the user of the host application who sends a request, if there is one."""
    if login is None:
        return None
    try:
        returned = login.authenticate(Request(scope))  # without `receive`: the body is not read yet
        identity = cast('object', await returned if inspect.isawaitable(returned) else returned)
    except HTTPException as error:  # how functions of FastAPI refuse a request
        raise refuse_http(error) from None
    if identity is not None and not isinstance(identity, Identity):
        raise InvalidLoginError(identity)
    return identity


async def _find_key(state: ServerState, scope: Scope, login: Login | None) -> Caller:
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
        if login is None:
            raise ServerError('unauthenticated')
        facts = {} if login.url is None else {'login_url': login.url}
        raise ServerError('unauthenticated', LOGIN_REQUIRED, facts=facts)
    caller = caller_with_key(key)
    _take(state, caller)
    return caller


def _take(state: ServerState, caller: Caller) -> None:
    """Apply the rate limit."""
    wait = state.rate.take(caller.account)
    if wait > 0:
        raise ServerError('rate_limited', headers={'Retry-After': str(ceil(wait))})


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
