"""What we use of `asyncpg`, which has no types of its own, and how we connect."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, Protocol, cast

import asyncpg

from pydantic_deep.store.engine import Value

_POOL: Final = 8
"""Connections besides that of the owner's lock."""

_CONNECT_SECONDS: Final = 10

_STATEMENT_SECONDS: Final = 300.0
"""How long a statement may take. Ours take milliseconds: this only ends waiting for a server that vanished."""

CLOSE_SECONDS: Final = 5.0
"""How long a server may take to answer that we leave, before we leave anyway."""

_SETTINGS: Final = {
    'application_name': 'pydantic-deep',
    'idle_in_transaction_session_timeout': '30000',
    'jit': 'off',  # it costs more than any of our queries
    'tcp_keepalives_idle': '30',
    'tcp_keepalives_interval': '10',
    'tcp_keepalives_count': '3',
}
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)


class Connection(Protocol):
    """What we use of a connection of `asyncpg`."""

    async def fetch(self, query: str, *args: Value) -> Sequence[Sequence[Value]]:
        """Run a query; prepared once for each connection."""
        ...

    async def execute(self, query: str) -> str:
        """Run statements without parameters, at once; return what the last says of itself."""
        ...

    async def executemany(self, command: str, args: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each of `args`, at once."""
        ...

    def is_closed(self) -> bool:
        """Return whether it has ended, as far as we have heard."""
        ...

    def terminate(self) -> None:
        """Leave without a word."""
        ...

    async def close(self, *, timeout: float | None = None) -> None:
        """Leave."""
        ...


class Pool(Protocol):
    """What we use of a pool of `asyncpg`."""

    def acquire(self) -> Awaitable[Connection]:
        """Lend a connection: one that is there, or a new one."""
        ...

    async def release(self, connection: Connection) -> None:
        """Take a connection back; one that has ended is replaced."""
        ...

    async def expire_connections(self) -> None:
        """Have all that are there replaced before they are lent again."""
        ...

    async def close(self) -> None:
        """Close all connections; without a word if the task is cancelled meanwhile."""
        ...


async def connect(url: str) -> Connection:
    """Open a connection that is in no pool."""
    connection = await asyncpg.connect(  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
        url,
        timeout=_CONNECT_SECONDS,
        command_timeout=_STATEMENT_SECONDS,
        server_settings=_SETTINGS,
    )
    return cast('Connection', connection)


async def create_pool(url: str, *, read_only: bool = False) -> Pool:
    """Make a pool, which connects when it must; the server refuses to write for one that is read-only."""
    pool = await asyncpg.create_pool(  # pyright: ignore[reportUnknownMemberType] - untyped
        url,
        min_size=0,
        max_size=_POOL,
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
    """Reset nothing when a connection goes back: nothing of ours is left in it, and it would be another message."""
