"""`Caller`: the key, owner and scopes of a request, and the dependency that requires a scope.

A route declares its scope with `Annotated[Caller, Depends(require('run'))]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer

from pydantic_deep.server._agents import ServedAgent
from pydantic_deep.server._api_keys import ApiKey, KeyScope
from pydantic_deep.server._state import ServerState
from pydantic_deep.server.http._errors import ServerError, not_found


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The caller of a request, as identified by the API key."""

    key_id: str
    """The id of the key."""
    owner: str
    """The owner whose conversations the key can access. An owner may have several keys."""
    scopes: frozenset[KeyScope]
    """The scopes of the key."""
    agents: frozenset[str] | None = None
    """The agents that the key may use; `None` for all."""

    def has(self, scope: KeyScope) -> bool:
        """Return whether the key has a scope. `admin` includes all scopes."""
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
    """A dependency that requires a scope."""

    scope: KeyScope | None
    """The required scope; `None` for any key."""

    def __call__(
        self,
        request: Request,
        # `Authentication` has already read these headers. They are parameters for the OpenAPI document only.
        bearer: Annotated[object, Security(_BEARER)],
        x_api_key: Annotated[object, Security(_X_API_KEY)],
        x_goog_api_key: Annotated[object, Security(_X_GOOG_API_KEY)],
    ) -> Caller:
        """Return the caller.

        Raises:
            ServerError: The key lacks the scope.
        """
        caller = request.state.caller
        assert isinstance(caller, Caller)  # noqa: S101  # no route with this dependency is public
        if self.scope is not None and not caller.has(self.scope):
            raise ServerError('forbidden', f'This requires a key with the scope `{self.scope}`.')
        return caller


def require(scope: KeyScope | None) -> Require:
    """Return a dependency that requires a scope, or any key for `None`."""
    return Require(scope)


def authorize_agent(state: ServerState, caller: Caller, name: str) -> ServedAgent:
    """Return an agent that the caller may use.

    Raises:
        ServerError: There is no such agent, or the key may not use it.
    """
    if name not in state.agents or not caller.may_use(name):
        raise not_found()
    return state.agents[name]


def caller_of(key: ApiKey) -> Caller:
    """Return the caller of a key."""
    agents = None if key.agents is None else frozenset(key.agents)
    return Caller(key_id=key.id, owner=key.owner, scopes=frozenset(key.scopes), agents=agents)
