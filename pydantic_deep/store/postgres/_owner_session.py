"""Who is alive: each open store holds an advisory lock in the database on a connection that does nothing else.

The server frees the lock when the connection ends: at once if its process does, and within a minute if its machine or
the network does, when the server's keepalive probes have found nobody. No clock of ours is involved, and a process
that is stopped for an hour keeps its lock.

If the connection is lost while its process lives, others may take the store for dead until it has the lock again,
which is before its next write. Runs that they took over meanwhile are lost to it, and the fence of each commit tells
it so (`RunTakenOverError`); all others it keeps.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ._driver import CLOSE_SECONDS, Connection

_HOLD: Final = 'SELECT pg_advisory_lock_shared($1)'
"""Shared, so that nothing waits for the session of ours that the server has not noticed to be gone."""

_HOLDERS: Final = (
    "SELECT classid::bigint, objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
    ' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())'
)
"""A lock on 64 bits is listed as its upper and its lower 32."""


class OwnerSession:
    """The lock of one open store.

    Args:
        connect: Makes a connection.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self.owner = secrets.token_hex(8)
        """Names this open store."""

    async def hold(self) -> None:
        """Make sure that we hold the lock, as far as we have heard. One call at a time."""
        if self._connection is None or self._connection.is_closed():
            connection = await self._connect()
            await connection.fetch(_HOLD, int.from_bytes(bytes.fromhex(self.owner), signed=True))
            self._connection = connection

    def drop_connection(self) -> None:
        """Drop the connection; `hold` opens a new one. Another connection was lost, so this one may be lost too."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def living(self, owners: Sequence[str], connection: Connection) -> set[str]:
        """Return those of the owners that hold their lock, and us: whoever asks is alive."""
        rows = await connection.fetch(_HOLDERS)
        holders = {f'{upper:08x}{lower:08x}' for upper, lower in rows}
        return {owner for owner in owners if owner in holders or owner == self.owner}

    async def aclose(self) -> None:
        """Be dead from now on."""
        if self._connection is not None:
            await self._connection.execute('SELECT pg_advisory_unlock_all()')  # or it would be alive for a moment yet
            await self._connection.close(timeout=CLOSE_SECONDS)
