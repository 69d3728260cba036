"""Commits whose answer was lost: the server is asked for their outcome.

A transaction that writes puts its id, and the name of the running server, into its `application_name`: the server
reports changes of this setting to the client, so both are known without a further message.

The server knows the outcome of each recent transaction (`pg_xact_status`). If it crashed before a commit reached the disk,
it assigns the id again, and would answer for another transaction. So after a restart, the id must be below the first one
that the server could assign then, which is in the checkpoint that ended its recovery or its shutdown: only for these are
`redo_lsn` and `checkpoint_lsn` equal. Later checkpoints replace it, usually after five minutes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

import asyncpg

from ._driver import SERVER_SETTING, Connection
from ._errors import LOST

T = TypeVar('T')

SHOW_ID: Final = (
    "set_config('application_name', concat_ws(' ', left(current_setting('application_name'), 20),"
    f" pg_current_xact_id(), current_setting('{SERVER_SETTING}')), true)"
)
_SHOWN: Final = re.compile(r'.* ([0-9]+) ([0-9a-f]+:[0-9a-f]*)')

_FIRST_ID: Final = (
    "SELECT (split_part(next_xid, ':', 1)::bigint << 32) + split_part(next_xid, ':', 2)::bigint"
    ' FROM pg_control_checkpoint(), pg_stat_wal WHERE redo_lsn = checkpoint_lsn'
    " AND ($1 OR checkpoint_time >= date_trunc('second', stats_reset))"
)
"""The first id that the server could assign after its restart, unless a later checkpoint has replaced it. If it was not
started again (`$1`), its statistics may also have been reset by hand: that is later than its last checkpoint.
"""


class TransactionId(NamedTuple):
    """The id of a transaction that writes."""

    number: int
    """The number, which servers assign again if they crash before it reaches the disk."""
    server: str
    """The name of the running server."""


@dataclass(frozen=True, kw_only=True)
class LostCommit(Generic[T]):
    """A commit whose answer was lost."""

    id: TransactionId | None
    """The id of its transaction; `None` if it is unknown because a pooler does not forward it."""
    result: T
    """The result of its operation, if it was applied."""
    error: Exception
    """The error of the connection."""


class PendingCommitError(TimeoutError):
    """The server has not yet ended the transaction of a lost commit."""


def transaction_id(connection: Connection) -> TransactionId | None:
    """Return the id of the current transaction, which has executed `SHOW_ID`."""
    shown = _SHOWN.fullmatch(connection.get_settings().application_name)
    return None if shown is None else TransactionId(int(shown[1]), shown[2])


async def is_applied(connection: Connection, id: TransactionId | None) -> bool | None:
    """Return whether a commit was applied; `None` if the server does not know.

    Raises:
        PendingCommitError: The server has not decided yet.
    """
    if id is None:
        return None
    server = str((await connection.fetch('SELECT current_setting($1)', SERVER_SETTING))[0][0])
    if server != id.server:
        is_started = server.partition(':')[0] != id.server.partition(':')[0]
        first = await _first_id(connection, is_started=is_started)
        if first is None:
            return None
        if id.number >= first:
            return False
    status = (await connection.fetch('SELECT pg_xact_status($1::text::xid8)', str(id.number)))[0][0]
    if status == 'in progress':
        raise PendingCommitError(f'the transaction {id.number} is still in progress')
    return None if status is None else status == 'committed'


async def _first_id(connection: Connection, *, is_started: bool) -> int | None:
    try:
        rows = await connection.fetch(_FIRST_ID, is_started)
    except LOST:
        raise
    except asyncpg.PostgresError:  # the role may not read it, or a hosted service does not have it
        return None
    return int(str(rows[0][0])) if rows else None
