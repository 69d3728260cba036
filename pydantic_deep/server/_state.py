"""`ServerState`: what every route works with. It is there while the application's lifespan runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, cast

from fastapi import Depends, Request
from starlette.types import Scope

from pydantic_deep.audit import AuditRecord
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.repository import Repository
from pydantic_deep.store import SqlStore
from pydantic_deep.versions import VersionedAgent
from pydantic_deep_backends import BackendProtocol

from ._api_keys import KeyRing
from ._metrics import ServerMetrics
from ._rate_limits import RateLimit, WrongKeyLimit
from ._settings import ServerSettings
from .compat._dialogue_threads import Thread
from .runs._pool import RunHub

ServedAgent: TypeAlias = VersionedAgent[Any, Any]
"""An agent with a store, whatever its deps and its output."""

MakeBackend: TypeAlias = Callable[[str, str], BackendProtocol]
"""Returns the files of a conversation, by its owner and its id."""


OWNER = 'server.owner'
"""What of the metadata of a root version says whose conversation it is; the versions that come from it have it too."""


class NotStartedError(DeepAgentError, RuntimeError):
    """The application is used outside of its lifespan."""

    def __init__(self) -> None:
        super().__init__(
            'The application has not started. Serve it by an ASGI server that runs its lifespan, or enter '
            '`app.router.lifespan_context(app)` in a test.'
        )


@dataclass(frozen=True, kw_only=True)
class ServerState:
    """What every route works with."""

    agents: Mapping[str, ServedAgent]
    """What is served, by the name that clients use, which their versions have too."""
    store: SqlStore
    """Where everything is kept."""
    settings: ServerSettings
    """What the operator has set."""
    keys: KeyRing
    """Knows the API keys."""
    audit: Repository[AuditRecord]
    """What became of each run."""
    threads: Repository[Thread]
    """Where dialogues are that clients send whole, each time."""
    hub: RunHub
    """The runs that work now, and the logs of those that ended."""
    rate: RateLimit
    """Who may ask how often."""
    wrong_keys: WrongKeyLimit
    """How often an address may send a wrong key."""
    metrics: ServerMetrics
    """What is counted."""
    make_backend: MakeBackend | None = None
    """Makes the files of a conversation; without it, each has an empty `StateBackend` to begin with."""


def state_in(scope: Scope) -> ServerState:
    """Return the state of the application that a scope belongs to.

    Raises:
        NotStartedError: Its lifespan does not run.
    """
    found = cast('ServerState | None', getattr(scope['app'].state, 'server', None))
    if found is None:
        raise NotStartedError
    return found


def state_of(request: Request) -> ServerState:
    """Return the state, as a dependency: `Annotated[ServerState, Depends(state_of)]`."""
    return state_in(request.scope)


State: TypeAlias = Annotated[ServerState, Depends(state_of)]
"""What a route takes to get it."""
