"""Operations on queued runs and on their logs of events."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Collection, Sequence
from struct import Struct
from typing import Final, Literal, cast

from pydantic_deep.store.engine import Operation, Row, Statement, Value, for_update
from pydantic_deep.store.errors import VersionBusyError, VersionNotFoundError
from pydantic_deep.store.records import LoggedEntries, QueuedRunRecord, QueueState, RunProgress
from pydantic_deep.store.sql import _keys
from pydantic_deep.store.sql._statements import (
    bytes_from,
    conditions,
    decoded,
    encoded,
    id_from,
    insert,
    integer,
    marks,
    select_in,
    text_from,
)
from pydantic_deep.store.sql.dialect import Dialect

_COLUMNS: Final = ', '.join(QueuedRunRecord._fields)
_KINDS: Final = (id_from, id_from, id_from, *[None] * 4, bytes_from, text_from, *[None] * 11)
_SELECT: Final = f'SELECT {_COLUMNS} FROM queued_run q'

_LENGTH: Final = Struct('>I')
"""Precedes each entry of a row of `run_event`, with its size in bytes."""

_IS_FIRST: Final = (
    '(q.base_id IS NOT NULL OR NOT EXISTS (SELECT 1 FROM queued_run e WHERE e.conversation_id = q.conversation_id'
    " AND e.state <> 'ended' AND e.number < q.number))"
)
"""A turn that continues the head waits for the turns of the conversation that were submitted before it."""

_HAS_OPEN_HEAD: Final = (
    '(q.base_id IS NOT NULL OR NOT EXISTS (SELECT 1 FROM conversation c JOIN version v ON v.id = c.head_id'
    " WHERE c.id = q.conversation_id AND v.state = 'awaiting_approval'))"
)
"""It also waits while the head has pending approvals, until a turn has resumed it."""

_IS_READY: Final = f"q.state <> 'ended' AND (q.cancelled_at IS NOT NULL OR {_IS_FIRST} AND {_HAS_OPEN_HEAD})"
"""A cancelled run waits for nothing: its worker only ends it."""

_IS_CANCELLED: Final = "q.state <> 'ended' AND q.cancelled_at IS NOT NULL"
"""Whether a run that has not ended is to be cancelled."""


def _record(row: Row) -> QueuedRunRecord:
    return QueuedRunRecord._make(decoded(row, _KINDS))


def add(
    run: QueuedRunRecord,
    max_active: int | None,
    max_of_key: int | None,
    *,
    exclusive: bool = False,
    orphans: Collection[str] = (),
) -> Operation[tuple[int, bool] | None]:
    """Add a run, unless a limit is reached; return the number of active runs and whether they are those of the key.

    Runs of a conversation are added one at a time. Otherwise one could become visible after a later one has begun. An
    exclusive one also locks its version before it looks for other runs from it, as runs without a queue do.
    """
    if exclusive and run.base_id is not None:
        sql = f'SELECT 1 FROM version WHERE id = ?1{for_update()}'
        if not (yield Statement(sql, (_keys.pack_id(run.base_id),))):
            raise VersionNotFoundError(run.base_id)
    if max_active is not None or max_of_key is not None:  # so are all runs with limits, so that the counts are exact
        yield Statement(f"SELECT value FROM meta WHERE key = 'format'{for_update()}")
    else:
        id = _keys.pack_id(run.conversation_id)
        yield Statement(f'SELECT 1 FROM conversation WHERE id = ?1{for_update()}', (id,))
    if (reached := (yield from reached_limit(run.key_id, max_active, max_of_key))) is not None:
        return reached
    if exclusive and run.base_id is not None:
        yield from refuse_if_busy(run.conversation_id, run.base_id, orphans, but=run.run_id)
    done = yield from insert(
        'queued_run', _COLUMNS, [tuple(encoded(run, _KINDS))], 'ON CONFLICT (run_id) DO NOTHING RETURNING number'
    )
    if not done:
        raise ValueError(f'The run {run.run_id!r} is queued already. Use a new id.')
    return None


def refuse_if_busy(
    conversation_id: str, base_id: str | None, orphans: Collection[str], *, but: str | None = None
) -> Operation[None]:
    """Raise if a run that starts from a version is active. The caller has locked the version.

    Args:
        conversation_id: The conversation of the version.
        base_id: The version; `None` for all versions of the conversation.
        orphans: Runs that are not active, although they are `running`. Those that the queue delivers again are active.
        but: The run that is about to be added or to begin.

    Raises:
        VersionBusyError: A run is queued, unless only the queue does not have its end yet, or it is `running`.
    """
    from_base, values = '', [_keys.pack_id(conversation_id)]
    if base_id is not None:
        from_base = ' AND base_id = ?2'
        values.append(_keys.pack_id(base_id))
    sql = (
        'WITH RECURSIVE attempt (queued_id, id, state) AS ('
        'SELECT q.run_id, r.id, r.state FROM queued_run q LEFT JOIN run r ON r.id = q.run_id'
        f" WHERE q.conversation_id = ?1{from_base.replace('base_id', 'q.base_id')} AND q.state <> 'ended'"
        ' UNION SELECT a.queued_id, r.id, r.state FROM attempt a JOIN run r ON r.attempt_of = a.id'
        ' WHERE r.conversation_id = ?1)'
        ' SELECT queued_id, 1 FROM attempt GROUP BY queued_id'
        " HAVING SUM(CASE WHEN state IN ('complete', 'failed', 'awaiting_approval') THEN 1 ELSE 0 END) = 0"
        ' UNION ALL SELECT id, 0 FROM run'
        f" WHERE conversation_id = ?1{from_base} AND state = 'running' AND parent_run_id IS NULL"
    )
    rows = yield Statement(sql, values)
    for row in rows:
        id, is_queued = id_from(row[0]), row[1] == 1
        if id != but and (is_queued or id not in orphans):
            raise VersionBusyError(id)


def reached_limit(
    key_id: str | None, max_active: int | None, max_of_key: int | None
) -> Operation[tuple[int, bool] | None]:
    """Return the number of active runs and whether they are those of the key, if another run would exceed a limit."""
    for limit, is_of_key in ((max_active, False), (max_of_key, True)):
        if limit is not None and not (is_of_key and key_id is None):
            count = yield from active(key_id if is_of_key else None)
            if count >= limit:
                return count, is_of_key
    return None


def active(key_id: str | None) -> Operation[int]:
    """Count the runs that have not ended, of one key or of all."""
    sql, values = "SELECT COUNT(*) FROM queued_run WHERE state <> 'ended'", []
    if key_id is not None:
        sql, values = f'{sql} AND key_id = ?1', [key_id]
    return integer((yield Statement(sql, values))[0][0])


def get(run_ids: Collection[str]) -> Operation[list[QueuedRunRecord]]:
    """Read queued runs by id."""
    rows = yield from select_in(f'{_SELECT} WHERE q.run_id IN ({{}})', map(_keys.pack_id, run_ids))
    return [_record(row) for row in rows]


def progress(run_ids: Collection[str]) -> Operation[list[RunProgress]]:
    """Read how far queued runs are."""
    sql = 'SELECT run_id, state, epoch, position FROM queued_run WHERE run_id IN ({})'
    rows = yield from select_in(sql, map(_keys.pack_id, run_ids))
    return [RunProgress(id_from(row[0]), *cast('tuple[QueueState, int, int]', row[1:])) for row in rows]


def find(
    account: str | None, conversation_id: str | None, worker: str | None, limit: int, *, ended: bool
) -> Operation[list[QueuedRunRecord]]:
    """Read queued runs, newest first."""
    values: list[Value] = [limit]
    conversation = None if conversation_id is None else _keys.pack_id(conversation_id)
    by = (('q.account = ?{}', account), ('q.conversation_id = ?{}', conversation), ('q.worker = ?{}', worker))
    where = ['1 = 1' if ended else "q.state <> 'ended'", *conditions(values, *by)]
    rows = yield Statement(f'{_SELECT} WHERE {" AND ".join(where)} ORDER BY q.number DESC LIMIT ?1', values)
    return [_record(row) for row in rows]


def workers() -> Operation[list[str]]:
    """Read the workers that have claimed runs, alive or not."""
    rows = yield Statement('SELECT DISTINCT worker FROM queued_run WHERE worker IS NOT NULL')
    return [str(row[0]) for row in rows]


def ready(
    agent_names: Sequence[str], dead: Sequence[str], limit: int, *, only_cancelled: bool = False
) -> Operation[list[QueuedRunRecord]]:
    """Read the runs, or the cancelled ones, that can begin or resume now and that nobody or a dead worker has claimed,
    those with the highest priority first, then the oldest.
    """
    names, dead_marks = marks(len(agent_names), 2) or 'NULL', marks(len(dead), 2 + len(agent_names)) or 'NULL'
    sql = (
        f'{_SELECT} WHERE {_IS_CANCELLED if only_cancelled else _IS_READY} AND q.agent_name IN ({names})'
        f' AND (q.worker IS NULL OR q.worker IN ({dead_marks})) ORDER BY q.priority DESC, q.number LIMIT ?1'
    )
    rows = yield Statement(sql, (limit, *agent_names, *dead))
    return [_record(row) for row in rows]


def claim(run_id: str, dead: str | None, worker: str, node: str, now: int) -> Operation[QueuedRunRecord | None]:
    """Claim a run that can begin or resume, from nobody or from a crashed worker; `None` if another was faster."""
    sql = (
        "UPDATE queued_run AS q SET state = 'running', worker = ?3, node = ?4, epoch = epoch + 1, position = 0,"
        ' started_at = COALESCE(started_at, ?5), heartbeat_at = ?5, problem = NULL'
        f" WHERE run_id = ?1 AND COALESCE(worker, '') = ?2 AND {_IS_READY} RETURNING {_COLUMNS}"
    )
    rows = yield Statement(sql, (_keys.pack_id(run_id), dead or '', worker, node, now))
    return _record(rows[0]) if rows else None


def release(run_id: str, worker: str, problem: str | None) -> Operation[None]:
    """Return a claimed run to the queue."""
    sql = "UPDATE queued_run SET state = 'queued', worker = NULL, problem = ?3 WHERE run_id = ?1 AND worker = ?2"
    yield Statement(sql, (_keys.pack_id(run_id), worker, problem))


def explain(run_id: str, problem: str) -> Operation[None]:
    """Record why a queued run cannot begin."""
    sql = "UPDATE queued_run SET problem = ?2 WHERE run_id = ?1 AND state = 'queued'"
    yield Statement(sql, (_keys.pack_id(run_id), problem))


def end(run_id: str, worker: str, problem: str | None, now: int) -> Operation[bool]:
    """End a run that this worker has claimed; return whether it was."""
    sql = (
        "UPDATE queued_run SET state = 'ended', worker = NULL, ended_at = ?3, problem = ?4"
        ' WHERE run_id = ?1 AND worker = ?2 RETURNING number'
    )
    return bool((yield Statement(sql, (_keys.pack_id(run_id), worker, now, problem))))


def request_cancel(run_id: str, now: int) -> Operation[QueuedRunRecord | None]:
    """Record a request to cancel a run; a queued one that nobody ever claimed ends. Return its record, `None` if it was
    not queued.
    """
    id = _keys.pack_id(run_id)
    sql = "UPDATE queued_run SET cancelled_at = ?2 WHERE run_id = ?1 AND state <> 'ended' AND cancelled_at IS NULL"
    yield Statement(sql, (id, now))
    sql = (
        "UPDATE queued_run SET state = 'ended', ended_at = ?2, problem = 'It was cancelled before it began.'"
        " WHERE run_id = ?1 AND state = 'queued' AND epoch = 0"
    )
    yield Statement(sql, (id, now))
    rows = yield Statement(f'{_SELECT} WHERE q.run_id = ?1', (id,))
    if rows:
        return _record(rows[0])
    sql = "UPDATE run SET cancelled_at = ?2 WHERE id = ?1 AND state = 'running' AND cancelled_at IS NULL"
    yield Statement(sql, (id, now))
    return None


def cancelled(owner: str) -> Operation[list[str]]:
    """Read the ids of an open store's runs that somebody wants to cancel: queued ones, other ones, and the crashed runs
    that these continue.
    """
    sql = (
        "SELECT run_id, NULL FROM queued_run WHERE state = 'running' AND worker = ?1 AND cancelled_at IS NOT NULL"
        " UNION ALL SELECT id, attempt_of FROM run WHERE state = 'running' AND owner = ?1 AND cancelled_at IS NOT NULL"
    )
    rows = yield Statement(sql, (owner,))
    return [id_from(id) for row in rows for id in row if id is not None]


def cancelled_among(run_ids: Collection[str]) -> Operation[set[str]]:
    """Read the ids of the running runs among these that somebody wants to cancel, and that were not queued."""
    sql = "SELECT id FROM run WHERE id IN ({}) AND state = 'running' AND cancelled_at IS NOT NULL"
    return {id_from(row[0]) for row in (yield from select_in(sql, map(_keys.pack_id, run_ids)))}


def beat(worker: str, now: int) -> Operation[None]:
    """Report that a worker's runs are alive."""
    yield Statement("UPDATE queued_run SET heartbeat_at = ?2 WHERE state = 'running' AND worker = ?1", (worker, now))


def append(run_id: str, epoch: int, after: int, entries: Sequence[bytes], dialect: Dialect) -> Operation[bool]:
    """Append entries to the log of a claim; return `False` if the claim is not the newest any more."""
    id, last = _keys.pack_id(run_id), after + len(entries)
    data = b''.join(part for entry in entries for part in (_LENGTH.pack(len(entry)), entry))
    if dialect.append_entries:
        return bool((yield Statement(dialect.append_entries, (id, epoch, after, last, data))))
    sql = 'UPDATE queued_run SET position = ?4 WHERE run_id = ?1 AND epoch = ?2 AND position = ?3 RETURNING number'
    if not (yield Statement(sql, (id, epoch, after, last))):
        return False
    sql = 'INSERT INTO run_event (run_id, epoch, last, entries) VALUES (?1, ?2, ?3, ?4)'
    yield Statement(sql, (id, epoch, last, data))
    return True


def entries(run_id: str, epoch: int, after: int, limit: int) -> Operation[list[LoggedEntries]]:
    """Read entries after a position, in parts; the first part may begin before it."""
    sql = 'SELECT last, entries FROM run_event WHERE run_id = ?1 AND epoch = ?2 AND last > ?3 ORDER BY last LIMIT ?4'
    rows = yield Statement(sql, (_keys.pack_id(run_id), epoch, after, limit))
    parts: list[LoggedEntries] = []
    for last, data in rows:
        part = _split(data if isinstance(data, bytes) else b'')
        parts.append(LoggedEntries(first=integer(last) - len(part) + 1, entries=part))
    return parts


def _split(data: bytes) -> list[bytes]:
    at, parts = 0, list[bytes]()
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        parts.append(data[at + _LENGTH.size : at + _LENGTH.size + size])
        at += _LENGTH.size + size
    return parts


def prune(before: int, limit: int) -> Operation[int]:
    """Remove runs that ended before a time, with their logs; return their number."""
    sql = 'SELECT run_id FROM queued_run WHERE ended_at IS NOT NULL AND ended_at < ?1 ORDER BY ended_at LIMIT ?2'
    rows = yield Statement(sql, (before, limit))
    for table in ('run_event', 'queued_run'):
        if rows:
            yield Statement(f'DELETE FROM {table} WHERE run_id = ?1', (), rows)
    return len(rows)


def time(clock: str) -> Operation[int]:
    """Read the time of the database, by `Dialect.clock`."""
    return integer((yield Statement(clock))[0][0])


Measure = Literal['queued', 'running', 'oldest_queued_at']


def measures() -> Operation[dict[Measure, int]]:
    """Count queued and running runs, and read when the oldest queued one was submitted; 0 if there is none."""
    sql = (
        "SELECT COALESCE(SUM(CASE state WHEN 'queued' THEN 1 ELSE 0 END), 0),"
        " COALESCE(SUM(CASE state WHEN 'running' THEN 1 ELSE 0 END), 0),"
        " COALESCE(MIN(CASE state WHEN 'queued' THEN submitted_at END), 0)"
        " FROM queued_run WHERE state <> 'ended'"
    )
    ((queued, running, oldest),) = yield Statement(sql)
    return {'queued': int(queued or 0), 'running': int(running or 0), 'oldest_queued_at': int(oldest or 0)}
