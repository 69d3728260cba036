"""Liveness of stores: each open store holds an advisory lock in the database, on a connection of its own.

The server releases the lock when the connection ends: immediately if the process ends, and within a minute if the
machine or network fails, once the server's keepalive probes go unanswered. No local clock is involved, and a process
that is stopped for an hour retains its lock.

If a live process loses this connection, others may consider its store crashed until it has reacquired the lock, which
happens before its next write. Runs that others took over meanwhile are lost to it, and the fence of their next commit
raises `RunTakenOverError`; all other runs are unaffected.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ._driver import CLOSE_SECONDS, Connection

_HOLD: Final = 'SELECT pg_advisory_lock_shared($1)'
"""A shared lock, so that reacquiring it does not wait for our lost session, which the server may still consider open.
"""

_HOLDERS: Final = (
    "SELECT classid::bigint, objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    ' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())'
)
"""A 64-bit lock is listed as its upper and lower 32 bits."""


class OwnerSession:
    """The lock of one open store.

    Args:
        connect: Opens a connection.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self.owner = secrets.token_hex(8)
        """Name of this open store."""

    async def hold(self) -> None:
        """Acquire the lock unless we hold it, as far as the client knows. Must not be called concurrently."""
        if self._connection is None or self._connection.is_closed():
            connection = await self._connect()
            await connection.fetch(_HOLD, int.from_bytes(bytes.fromhex(self.owner), signed=True))
            self._connection = connection

    def drop_connection(self) -> None:
        """Drop the connection; `hold` opens a new one. Called when another connection was lost, as this one may be lost
        too.
        """
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def living(self, owners: Sequence[str], connection: Connection) -> set[str]:
        """Return the owners that hold their lock, and this one, which is alive by definition."""
        rows = await connection.fetch(_HOLDERS)
        holders = {f'{upper:08x}{lower:08x}' for upper, lower in rows}
        return {owner for owner in owners if owner in holders or owner == self.owner}

    async def aclose(self) -> None:
        """Release the lock, which ends this owner's liveness."""
        if self._connection is not None:
            # Without this the owner would seem alive for a moment.
            await self._connection.execute('SELECT pg_advisory_unlock_all()')
            await self._connection.close(timeout=CLOSE_SECONDS)
