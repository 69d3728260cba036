"""`Identity`: who sends a request and what they may do, from an API key or from the application around this server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.requests import Request

from pydantic_deep._checks import check_name, check_name_list, check_text
from pydantic_deep.errors import DeepAgentError, ValidationError
from pydantic_deep.server._api_keys import ApiKey, KeyScope, scope_problem


class InvalidIdentityError(ValidationError):
    """An `Identity` has no owner, no scope, or an unknown scope."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who sends a request, and what they may do. `authenticate` of `create_app` returns it.

    Raises:
        InvalidIdentityError: There is no scope, or an unknown one.
        ValidationError: The owner or an agent is blank or not a string, or `agents` is a text.
    """

    owner: str
    """The owner of the conversations. Use an id that never changes and is never given to another person. API keys with
    this `owner` access the same conversations."""
    scopes: Sequence[KeyScope] = ('run', 'approve')
    """The permissions: `run`, `approve`, `audit`, `admin`."""
    agents: Sequence[str] | None = None
    """The agents that may be used; `None` for all."""

    def __post_init__(self) -> None:
        check_name('owner', self.owner)
        check_name_list('agents', self.agents)
        if (problem := scope_problem(self.scopes)) is not None:
            raise InvalidIdentityError('scopes', problem)


Authenticate: TypeAlias = Callable[[Request], Identity | Awaitable[Identity | None] | None]
"""Returns who sends a request, or `None` to require an API key."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """The login of the application around this server."""

    authenticate: Authenticate
    """Returns who sends a request."""
    url: str | None
    """Where people log in; `None` if the page should ask for an API key."""
    logout_url: str | None
    """Where people log out; `None` if the page should not offer it."""


def create_login(authenticate: Authenticate | None, url: str | None, logout_url: str | None) -> Login | None:
    """Return the login for the arguments of `create_app`.

    Raises:
        ValidationError: An address is not a path and not HTTP, or there is no `authenticate`.
    """
    for name, address in (('login_url', url), ('logout_url', logout_url)):
        if address is None:
            continue
        check_text(name, address)
        if authenticate is None:
            raise ValidationError(name, 'it needs `authenticate`. Pass both, or neither.')
        if not address.startswith(('/', 'https://', 'http://')):
            raise ValidationError(name, f'it is {address!r}. Pass a path that starts with `/`, or an `https:` address.')
    return None if authenticate is None else Login(authenticate=authenticate, url=url, logout_url=logout_url)


class InvalidLoginError(DeepAgentError, TypeError):
    """`authenticate` returned something else than an `Identity` or `None`."""

    def __init__(self, returned: object) -> None:
        super().__init__(
            f'`authenticate` returned an object of type {type(returned).__name__!r}. Return an `Identity`, or `None` to '
            'require an API key.'
        )


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The sender of a request."""

    identity: Identity
    """Who sends the request, and what they may do."""
    account: str
    """The account that the limits count: the id of the API key, or `owner:` and the owner."""
    has_key: bool
    """Whether an API key was sent. Otherwise `authenticate` has returned the identity."""
    logout_url: str | None = None
    """Where a caller without a key logs out, if the application around this server has an address for that."""


OWNER_ACCOUNT: Final = 'owner:'
"""The beginning of an account without a key. Ids of keys are UUIDs."""


def caller_with_key(key: ApiKey) -> Caller:
    """Return the caller that has a key."""
    identity = Identity(owner=key.owner, scopes=key.scopes, agents=key.agents)
    return Caller(identity=identity, account=key.id, has_key=True)


def caller_of_host(identity: Identity, logout_url: str | None = None) -> Caller:
    """Return the caller that the application around this server knows."""
    account = OWNER_ACCOUNT + identity.owner
    return Caller(identity=identity, account=account, has_key=False, logout_url=logout_url)
