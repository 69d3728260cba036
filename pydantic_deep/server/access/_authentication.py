"""Who asks, and what they may: deny by default.

Without a key nothing is answered but what `is_open` names, whether there is a route or not, and no body is read.
A route says what scope it needs by `Annotated[Caller, Depends(require('run'))]`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import Annotated, cast

import anyio
from fastapi import Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_deep.repository import RepositoryClosedError, RepositoryUnavailableError
from pydantic_deep.server._api_keys import ApiKey, KeyScope
from pydantic_deep.server._state import ServedAgent, ServerState, state_in
from pydantic_deep.server.http._errors import ServerError, api_of, not_found, path_of, render_error
from pydantic_deep.store import StoreClosedError, StoreUnavailableError

AWAY = (StoreUnavailableError, StoreClosedError, RepositoryUnavailableError, RepositoryClosedError)
"""What is raised while the database cannot be reached."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Whoever a request comes from."""

    key_id: str
    """The key that was sent."""
    owner: str
    """Whose conversations these are; several keys may be of one owner."""
    scopes: frozenset[KeyScope]
    """What the key may do."""
    agents: frozenset[str] | None = None
    """The agents that it may use; `None` for all."""

    def has(self, scope: KeyScope) -> bool:
        """Return whether the key may do this; `admin` includes everything."""
        return scope in self.scopes or 'admin' in self.scopes

    def may_use(self, agent: str) -> bool:
        """Return whether the key may use an agent."""
        return self.agents is None or agent in self.agents


_BEARER = HTTPBearer(auto_error=False, scheme_name='bearer', description='An API key: ours and OpenAI clients.')
_X_API_KEY = APIKeyHeader(
    name='x-api-key', auto_error=False, scheme_name='x-api-key', description='An API key: Anthropic clients.'
)
_X_GOOG_API_KEY = APIKeyHeader(
    name='x-goog-api-key', auto_error=False, scheme_name='x-goog-api-key', description='An API key: Google clients.'
)


@dataclass(frozen=True)
class Require:
    """A dependency that lets pass who has a scope."""

    scope: KeyScope | None
    """The scope; `None` for any key."""

    def __call__(
        self,
        request: Request,
        # Read by `Authentication` already: they are here for the OpenAPI document.
        bearer: Annotated[object, Security(_BEARER)],
        x_api_key: Annotated[object, Security(_X_API_KEY)],
        x_goog_api_key: Annotated[object, Security(_X_GOOG_API_KEY)],
    ) -> Caller:
        """Return who asks.

        Raises:
            ServerError: The key has not the scope.
        """
        caller = request.state.caller
        assert isinstance(caller, Caller)  # noqa: S101  # no route with this dependency is open
        if self.scope is not None and not caller.has(self.scope):
            raise ServerError('forbidden', f'This needs a key with the scope `{self.scope}`.')
        return caller


def require(scope: KeyScope | None) -> Require:
    """Return the dependency of a route that only keys with a scope may call; `None` for any key."""
    return Require(scope)


def agent_for(state: ServerState, caller: Caller, name: str) -> ServedAgent:
    """Return an agent that a caller may use.

    Raises:
        ServerError: There is none of that name, or the key may not use it.
    """
    if name not in state.agents or not caller.may_use(name):
        raise not_found()
    return state.agents[name]


def is_open(path: str) -> bool:
    """Return whether a path is for everybody: the page, what it is made of, and whether the server lives."""
    return path in ('/', '/health') or path.startswith('/static/')


class Authentication:
    """An ASGI layer that lets nobody pass without a key, and nobody too often; `request.state.caller` is who it was."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http' or is_open(path_of(scope)):
            await self._app(scope, receive, send)
            return
        state = state_in(scope)
        try:
            scope.setdefault('state', {})['caller'] = await _admit(state, scope)
        except ServerError as error:
            await render_error(error, api_of(path_of(scope)))(scope, receive, send)
            return
        try:
            await self._app(scope, receive, _Told(state, _secret_of(scope), send).send)
        except _KeyEndedError:
            await send({'type': 'http.response.body', 'body': b'', 'more_body': False})


class _KeyEndedError(Exception):
    """A key was revoked or expired while a stream was told to it."""


class _Told:
    """What is told to a key: a stream that lasts ends with the key, also where nothing else is asked with it.

    The key is read again when something is told, at most as often as a silent stream is kept alive. An answer that is
    told at once was admitted, and is not cut.
    """

    def __init__(self, state: ServerState, secret: str, send: Send) -> None:
        self._state = state
        self._secret = secret
        self._send = send
        self._checked_at = anyio.current_time()

    async def send(self, message: Message) -> None:
        if message.get('more_body', False) and self._is_due():
            with suppress(*AWAY):  # what cannot be known now is asked again
                if await self._state.keys.find(self._secret) is None:
                    raise _KeyEndedError
        await self._send(message)

    def _is_due(self) -> bool:
        now = anyio.current_time()
        if now - self._checked_at < self._state.settings.keepalive_seconds:
            return False
        self._checked_at = now
        return True


async def _admit(state: ServerState, scope: Scope) -> Caller:
    secret = _secret_of(scope)
    try:
        key = await state.keys.find(secret)
    except AWAY:
        raise ServerError('unavailable', headers={'Retry-After': '5'}) from None
    if key is None:
        client = cast('tuple[str, int] | None', scope.get('client'))
        wait = state.wrong_keys.take(client[0] if client else '') if secret else 0
        if wait > 0:
            said = 'Too many wrong keys from this address. Wait as long as `Retry-After` says.'
            raise ServerError('rate_limited', said, headers={'Retry-After': str(ceil(wait))})
        raise ServerError('unauthenticated')
    wait = state.rate.take(key.id)
    if wait > 0:
        raise ServerError('rate_limited', headers={'Retry-After': str(ceil(wait))})
    return caller_of(key)


def caller_of(key: ApiKey) -> Caller:
    """Return who has a key."""
    agents = None if key.agents is None else frozenset(key.agents)
    return Caller(key_id=key.id, owner=key.owner, scopes=frozenset(key.scopes), agents=agents)


def _secret_of(scope: Scope) -> str:
    """Return the key that was sent; an empty text if none was."""
    headers = Headers(scope=scope)
    kind, _, token = headers.get('authorization', '').partition(' ')
    if kind.lower() == 'bearer':
        return token.strip()
    return headers.get('x-api-key') or headers.get('x-goog-api-key') or ''


class KeyInQuery:
    """An ASGI layer that moves `?key=`, which Google's clients may send, to the header `x-goog-api-key`.

    The scope itself is changed, as servers write their access logs from it: the key is in none of them. Only below
    `/v1beta`: anywhere else a key in an address is not taken.
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
