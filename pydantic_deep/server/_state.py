"""`ServerState`: the objects that all routes share, created by the lifespan of the application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias, cast

from fastapi import Depends, Request
from starlette.types import ASGIApp, Scope

from pydantic_deep.audit import AuditRecord
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.memory import VersionedMemory
from pydantic_deep.repository import SqlRepository
from pydantic_deep.store import SqlStore
from pydantic_deep.views import StoreReader
from pydantic_deep_backends import BackendProtocol

from ._agents import ServedAgent
from ._api_keys import KeyRing
from ._metrics import ServerMetrics
from ._openai_objects import OpenaiObject
from ._rate_limits import RateLimit, WrongKeyLimit
from ._settings import ServerSettings
from ._threads import Thread
from .runs._pool import RunPool
from .runs._repetitions import Repetitions
from .webhooks._webhooks import Webhooks

MakeBackend: TypeAlias = Callable[[str, str], BackendProtocol]
"""Returns the backend of a conversation, by its owner and its id."""


OWNER = 'server.owner'
"""The metadata key of a root version that contains the owner of the conversation. Later versions inherit it."""


class NotStartedError(DeepAgentError, RuntimeError):
    """The application is used outside of its lifespan."""

    def __init__(self) -> None:
        super().__init__(
            'The application has not started. Use an ASGI server that runs its lifespan, or enter '
            '`app.router.lifespan_context(app)` in a test.'
        )


@dataclass(frozen=True, kw_only=True)
class McpSession:
    """A connection of a client of MCP that lasts longer than a request."""

    id: str
    """The id that the client sends with each request, a UUID."""
    caller: object
    """Who has opened it. A request of another caller, or with other permissions, never reaches it."""
    handle: ASGIApp
    """Answers a request of the session."""
    end: Callable[[], None]
    """Ends the session soon."""


@dataclass(frozen=True, kw_only=True)
class ServerState:
    """The objects that all routes share."""

    agents: Mapping[str, ServedAgent]
    """The served agents, keyed by the name that clients use, which their versions have too."""
    store: SqlStore
    """The store of conversations, keys and audit records."""
    settings: ServerSettings
    """The settings of the operator."""
    keys: KeyRing
    """Lookup and storage of the API keys."""
    audit: SqlRepository[AuditRecord]
    """Repository of the audit records."""
    threads: SqlRepository[Thread]
    """The threads of clients of other APIs and of user interfaces."""
    openai_objects: SqlRepository[OpenaiObject]
    """Fields of the responses and conversations of OpenAI's clients."""
    webhooks: Webhooks
    """The webhooks of all owners."""
    memory: VersionedMemory | None
    """The memory of all owners; `None` if agents have none."""
    runs: RunPool
    """The running runs, and the logs of ended ones."""
    rate: RateLimit
    """The rate limit of each key."""
    wrong_keys: WrongKeyLimit
    """The rate limit of wrong keys, by address."""
    views: StoreReader
    """Loads views from the store, without data that clients must not see."""
    metrics: ServerMetrics
    """The Prometheus metrics of the application."""
    repetitions: Repetitions
    """The runs of repeated requests of clients of other APIs."""
    mcp_sessions: dict[str, McpSession] = field(default_factory=dict[str, McpSession])
    """The sessions of MCP in this process, by id, in the order of their last use."""
    hands_over: bool = False
    """Whether runs are queued for workers, which may be in other processes."""
    make_backend: MakeBackend | None = None
    """Creates the backend of a conversation. By default, each starts with an empty `StateBackend`."""


def state_in(scope: Scope) -> ServerState:
    """Return the state of the application that a scope belongs to.

    Raises:
        NotStartedError: The lifespan of the application is not running.
    """
    state = cast('ServerState | None', getattr(scope['app'].state, 'server', None))
    if state is None:
        raise NotStartedError
    return state


def state_of(request: Request) -> ServerState:
    """Return the state, as a dependency: `Annotated[ServerState, Depends(state_of)]`."""
    return state_in(request.scope)


State: TypeAlias = Annotated[ServerState, Depends(state_of)]
"""The parameter type with which a route receives the state."""
