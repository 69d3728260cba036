"""Typed interface to the parts of `asyncpg` that we use, and the connection settings."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, Protocol, cast

import asyncpg

from pydantic_deep.store.engine import Value

POOL_SIZE: Final = 8
"""Maximum number of connections, besides that of the owner lock."""

_CONNECT_SECONDS: Final = 10

_STATEMENT_SECONDS: Final = 300.0
"""Timeout of a statement. Statements take milliseconds: the timeout only detects a server that vanished."""

CLOSE_SECONDS: Final = 5.0
"""Timeout of the server's answer when a connection is closed; then it is terminated."""

_SETTINGS: Final = {
    'application_name': 'pydantic-deep',
    'idle_in_transaction_session_timeout': '30000',
    'jit': 'off',  # it costs more than it saves for our queries
    'tcp_keepalives_idle': '30',
    'tcp_keepalives_interval': '10',
    'tcp_keepalives_count': '3',
}
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)


class Connection(Protocol):
    """The methods of an `asyncpg` connection that we use."""

    async def fetch(self, query: str, *args: Value) -> Sequence[Sequence[Value]]:
        """Run a query, which is prepared once per connection."""
        ...

    async def execute(self, query: str) -> str:
        """Run statements without parameters in one message; return the status of the last."""
        ...

    async def executemany(self, command: str, args: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each of `args`, in one batch."""
        ...

    def is_closed(self) -> bool:
        """Return whether the connection has been closed, as far as the client knows."""
        ...

    def terminate(self) -> None:
        """Close the connection without notifying the server."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:
        """Close the connection."""
        ...


class Pool(Protocol):
    """The methods of an `asyncpg` pool that we use."""

    def acquire(self) -> Awaitable[Connection]:
        """Acquire a connection, existing or new."""
        ...

    async def release(self, connection: Connection) -> None:
        """Return a connection to the pool; a closed one is replaced."""
        ...

    async def expire_connections(self) -> None:
        """Replace all current connections before their next use."""
        ...

    async def close(self) -> None:
        """Close all connections; if the task is cancelled meanwhile, terminate them."""
        ...


async def connect(url: str) -> Connection:
    """Open a connection outside of any pool."""
    connection = await asyncpg.connect(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
        url,
        timeout=_CONNECT_SECONDS,
        command_timeout=_STATEMENT_SECONDS,
        server_settings=_SETTINGS,
    )
    return cast('Connection', connection)


async def create_pool(url: str, *, read_only: bool = False) -> Pool:
    """Create a pool, which connects on demand. With `read_only`, the server refuses writes."""
    pool = await asyncpg.create_pool(  # pyright: ignore[reportUnknownMemberType] - untyped
        url,
        min_size=0,
        max_size=POOL_SIZE,
        init=_make_durable,
        reset=_keep_session,
        timeout=_CONNECT_SECONDS,
        command_timeout=_STATEMENT_SECONDS,
        statement_cache_size=512,
        max_cacheable_statement_size=0,
        server_settings=_SETTINGS | ({'default_transaction_read_only': 'on'} if read_only else {}),
    )
    return cast('Pool', pool)


async def _make_durable(connection: Connection) -> None:
    await connection.fetch(_DURABLE)


async def _keep_session(_: object) -> None:
    """Skip the reset of a returned connection: our sessions have no state to reset, and it would cost a round trip."""
