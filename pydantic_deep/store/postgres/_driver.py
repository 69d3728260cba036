"""Typed interface to the parts of `asyncpg` that we use, and the connection settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
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
_SERVER: Final = (
    "(SELECT concat(to_hex((EXTRACT(EPOCH FROM pg_postmaster_start_time()) * 1000000)::bigint), ':',"
    ' to_hex((EXTRACT(EPOCH FROM stats_reset) * 1000000)::bigint)) FROM pg_stat_wal)'
)
"""The name of the running server: when it was started, and when its statistics were reset, as they are after a crash of
one of its processes, which restarts the others.
"""

SERVER_SETTING: Final = 'pydantic_deep.server'
"""The setting of a session that has the name of its server."""

_PREPARE: Final = (
    f"SELECT set_config('{SERVER_SETTING}', {_SERVER}, false),"
    " CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"
)


class Settings(Protocol):
    """The settings of a session that the server reports."""

    @property
    def application_name(self) -> str:
        """The name of the program."""
        ...


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

    def get_settings(self) -> Settings:
        """Return the settings that the server reports, as of its last message."""
        ...

    def add_termination_listener(self, callback: Callable[[object], None]) -> None:
        """Call a function, with the connection, when it has ended for any reason."""
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
        init=_prepare,
        reset=_keep_session,
        timeout=_CONNECT_SECONDS,
        command_timeout=_STATEMENT_SECONDS,
        statement_cache_size=512,
        max_cacheable_statement_size=0,
        server_settings=_SETTINGS | ({'default_transaction_read_only': 'on'} if read_only else {}),
    )
    return cast('Pool', pool)


async def _prepare(connection: Connection) -> None:
    """Make commits durable, and let transactions name their server."""
    await connection.fetch(_PREPARE)


async def _keep_session(_: object) -> None:
    """Skip the reset of a returned connection: our sessions have no state to reset, and it would cost a round trip."""
