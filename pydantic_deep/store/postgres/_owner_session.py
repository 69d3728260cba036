"""Liveness of stores: each open store holds an advisory lock in the database, on a connection of its own.

The server releases the lock when the connection ends: immediately if the process ends, and within a minute if the
machine or network fails, once the server's keepalive probes go unanswered. No local clock is involved, and a process
that is stopped for an hour retains its lock.

If a live process loses this connection, it reacquires the lock in the background, and in any case before its next write.
After a restart of the server, which ends all connections, and after a process has lost its own, it waits for the locks of
others before it considers them crashed. If only one process loses its connection, others may still consider its store
crashed until it has reacquired the lock. Runs that they took over meanwhile are lost to it, and the fence of their next
commit raises `RunTakenOverError`; all other runs are unaffected.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

from ._driver import CLOSE_SECONDS, Connection

_HOLD: Final = 'SELECT pg_advisory_lock_shared($1)'
"""A shared lock, so that reacquiring it does not wait for our lost session, which the server may still consider open.
"""

_HOLDERS: Final = (
    'SELECT classid::bigint, objid::bigint, seconds FROM'
    ' (SELECT EXTRACT(EPOCH FROM clock_timestamp() - greatest(pg_postmaster_start_time(), stats_reset))::float8 AS seconds'
    ' FROM pg_stat_wal) AS server'
    " LEFT JOIN pg_locks ON locktype = 'advisory' AND objsubid = 1 AND granted"
    ' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())'
)
"""The locks, and how long the server runs: it resets its statistics when it restarts after a crash of one of its processes.
A 64-bit lock is listed as its upper and lower 32 bits.
"""


class OwnerSession:
    """The lock of one open store.

    Args:
        connect: Opens a connection.
        on_loss: Called when the connection that holds the lock has ended.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], on_loss: Callable[[], object]) -> None:
        self._connect = connect
        self._on_loss = on_loss
        self._connection: Connection | None = None
        self._is_doubtful = False
        self.owner = secrets.token_hex(8)
        """Name of this open store."""

    async def hold(self) -> None:
        """Acquire the lock unless we hold it, as far as the client knows. Must not be called concurrently."""
        if self._connection is not None and not self._connection.is_closed() and not self._is_doubtful:
            return
        self._is_doubtful = False
        connection = await self._connect()
        try:
            await connection.fetch(_HOLD, int.from_bytes(bytes.fromhex(self.owner), signed=True))
        except BaseException:
            connection.terminate()
            raise
        old, self._connection = self._connection, connection
        connection.add_termination_listener(self._ended)
        if old is not None:
            old.terminate()

    def doubt(self) -> None:
        """Let `hold` acquire the lock on a new connection. Called when another connection was lost, as this one may be
        lost too. The old one is ended afterwards, so that a lock which is still held is held all the time.
        """
        self._is_doubtful = True

    async def living(self, owners: Sequence[str], connection: Connection) -> tuple[set[str], float]:
        """Return the owners that hold their lock, with this one, which is alive by definition; and how long the server has
        been running, in seconds.
        """
        rows = await connection.fetch(_HOLDERS)
        holders = {f'{upper:08x}{lower:08x}' for upper, lower, _ in rows if upper is not None}
        living = {owner for owner in owners if owner in holders or owner == self.owner}
        return living, cast('float', rows[0][2])

    async def aclose(self) -> None:
        """Release the lock, which ends this owner's liveness."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:  # without this the owner would seem alive for a moment
                async with asyncio.timeout(CLOSE_SECONDS):
                    await connection.execute('SELECT pg_advisory_unlock_all()')
            finally:
                await connection.close(timeout=CLOSE_SECONDS)

    def _ended(self, connection: object) -> None:
        if connection is self._connection:
            self._on_loss()
