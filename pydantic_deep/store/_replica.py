"""The replica: a DuckDB database with the history of a store, in memory or in a file that can be thrown away.

One connection writes what `_replica_follow` fetched. Queries of callers run beside it, each on a cursor of its own, in
a read-only transaction of a database that can reach nothing outside itself, with settings that nothing can change.
Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

import duckdb

from ._replica_operations import Survey
from ._replica_rows import Cell, Cells
from ._replica_schema import CREATE, MESSAGES, REPLICA_FORMAT, RETURNS, ReplicaTable
from ._replica_table import Table
from .errors import QueryError

P = ParamSpec('P')
T = TypeVar('T')

Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
"""The values of `?` or `$1`, or of `$name`, in a query."""

MAX_ROWS: Final = 1_000_000
"""Rows that a query may return: they become Python objects, of which a million takes some hundred megabytes."""

_FETCHED_ROWS: Final = 2048
"""Rows taken at once: a vector of DuckDB."""

_MEMORY_LIMIT: Final = '2GB'
"""For the replica in memory and what queries need; with a file, what does not fit is written beside it."""

_THREADS: Final = 4
"""Threads of one replica at most: it is a guest in a process that does other things."""

_TABLE_OF_KIND: Final = {
    'version': 'versions',
    'run': 'runs',
    'tool_call': 'tool_calls',
    'delegation': 'delegations',
    'approval': 'internal.approval_log',
    'branch': 'branches',
    'message': 'messages',
    'conversation': 'conversations',
}

_SIGNS: Final = {
    **{kind: f'SELECT number, 0 AS mark FROM {table}' for kind, table in _TABLE_OF_KIND.items()},  # noqa: S608
    'branch': 'SELECT number, message_count AS mark FROM branches',
    'conversation': 'SELECT c.number AS number, coalesce(v.number, 0) AS mark'
    ' FROM conversations c LEFT JOIN versions v ON v.id = c.head_id',
}
"""The same as those of a store, see `_replica_operations`."""

_UNSETTLED: Final = {
    'run': "state = 'running'",
    'tool_call': "status IN ('started', 'deferred')",
    'approval': "status = 'pending' OR (resumed_by IS NULL AND status NOT IN ('expired', 'superseded'))",
}
"""Rows that may be other ones by now."""

_ORPHANS: Final = (
    'DELETE FROM requests WHERE run_id NOT IN (SELECT id FROM runs)',
    'DELETE FROM file_changes WHERE version_id NOT IN (SELECT id FROM versions)',
    'DELETE FROM internal.todo_lists WHERE deps NOT IN (SELECT deps FROM versions WHERE deps IS NOT NULL)',
    'DELETE FROM internal.tool_returns WHERE message NOT IN (SELECT number FROM messages)',
)
"""What goes with what was deleted."""

_SETTLE_RESULTS: Final = """
    UPDATE tool_calls SET result = found.result FROM (
        SELECT asked.number, answer.result
        FROM (SELECT c.number, c.conversation_id, c.tool_call_id, m.number AS message
              FROM tool_calls c JOIN messages m ON m.id = c.response_id
              WHERE c.result IS NULL AND c.status IN ('done', 'failed')) asked
        ASOF JOIN internal.tool_returns answer
        ON asked.conversation_id = answer.conversation_id AND asked.tool_call_id = answer.tool_call_id
        AND asked.message < answer.message
    ) found WHERE found.number = tool_calls.number
"""
"""A call whose result went into a message has the one that follows it: ids of calls repeat."""


class Change(NamedTuple):
    """Rows of one table, and the keys whose rows they replace."""

    table: ReplicaTable
    keys: Sequence[Cells]
    rows: Sequence[Cells]


def _one_at_a_time(method: Callable[Concatenate[Replica, P], T]) -> Callable[Concatenate[Replica, P], T]:
    """Let a method wait for another one, in a thread that goes on although its task was cancelled."""

    @wraps(method)
    def locked(self: Replica, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:  # pyright: ignore[reportPrivateUsage] - it decorates methods of this class alone
            return method(self, *args, **kwargs)

    return locked


class Replica:
    """A DuckDB database.

    Raises:
        duckdb.Error: The file is damaged, or none of ours.
    """

    def __init__(self, path: Path | None = None, *, writable: Path | None = None) -> None:
        """Open it, and make its tables if it has none.

        Args:
            path: The file; `None` for memory.
            writable: A directory that its own connection may write to.
        """
        settings: dict[str, str | bool | int | float | list[str]] = {
            'autoinstall_known_extensions': 'false',
            'autoload_known_extensions': 'false',
            'allow_community_extensions': 'false',
            'allow_persistent_secrets': 'false',
            'python_enable_replacements': 'false',
            'memory_limit': _MEMORY_LIMIT,
            'threads': str(_THREADS),
            'temp_directory': '' if path is None else f'{path}.tmp',
        }
        self._lock = threading.RLock()
        self._connection = duckdb.connect(':memory:' if path is None else str(path), config=settings)
        try:
            if writable is not None:
                self._connection.execute('SET allowed_directories = [?]', [f'{writable}/'])
            self._connection.execute('SET enable_external_access = false')
            self._connection.execute('SET lock_configuration = true')
            self._prepare()
        except duckdb.Error:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        has_tables = self._connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'replica'").fetchall()
        if has_tables:
            found = self._connection.execute('SELECT format FROM internal.replica').fetchall()
            if found == [(REPLICA_FORMAT,)]:
                return
            raise duckdb.InvalidInputException(f'The replica has the format {found}.')
        self._connection.begin()
        for statement in CREATE:
            self._connection.execute(statement)
        self._connection.execute('CREATE TABLE internal.replica AS SELECT ? AS format', [REPLICA_FORMAT])
        self._connection.commit()

    @_one_at_a_time
    def survey(self) -> dict[str, Survey]:
        """Return how much there is of each kind."""
        parts = (
            f"SELECT '{kind}', count(*), coalesce(max(number), 0), coalesce(sum(mark), 0)::BIGINT FROM ({sql})"  # noqa: S608
            for kind, sql in _SIGNS.items()
        )
        rows = self._connection.execute(' UNION ALL '.join(parts)).fetchall()
        return {kind: Survey(count, last, mark_sum) for kind, count, last, mark_sum in rows}

    @_one_at_a_time
    def unsettled(self) -> dict[str, list[int]]:
        """Return the numbers of the rows that may be other ones by now."""
        return {
            kind: self._numbers(f'SELECT number FROM {_TABLE_OF_KIND[kind]} WHERE {condition} ORDER BY number')  # noqa: S608
            for kind, condition in _UNSETTLED.items()
        }

    @_one_at_a_time
    def tips(self, branches: Sequence[int]) -> dict[int, int]:
        """Return up to where the branches of these numbers are here, as far as they are."""
        rows = self._connection.execute(
            'SELECT number, message_count FROM branches WHERE number IN (SELECT unnest(?::BIGINT[]))', [branches]
        ).fetchall()
        return dict(rows)

    @_one_at_a_time
    def unknown_deps(self, digests: Iterable[str]) -> list[str]:
        """Return those of the digests of deps that no version here has."""
        rows = self._connection.execute(
            'SELECT unnest(?::VARCHAR[]) EXCEPT SELECT deps FROM versions', [sorted(set(digests))]
        ).fetchall()
        return [digest for (digest,) in rows]

    @_one_at_a_time
    def apply(self, changes: Iterable[Change]) -> None:
        """Make all of these changes, in one transaction."""
        self._connection.begin()
        try:
            for table, keys, rows in changes:
                if keys:
                    self._connection.execute(table.delete_sql, _columns(keys))
                if rows:
                    self._connection.execute(table.insert_sql, _columns(rows))
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    @_one_at_a_time
    def add_messages(self, messages: Mapping[int, Cells], returns: Sequence[Cells]) -> None:
        """Add those of the messages, by number, that are not here: another branch may have brought them."""
        known = self._numbers(
            f'SELECT number FROM {MESSAGES.name} WHERE number IN (SELECT unnest(?::BIGINT[]))',  # noqa: S608
            [list(messages)],
        )
        new = messages.keys() - set(known)
        self.apply(
            [
                Change(MESSAGES, (), [messages[number] for number in sorted(new)]),
                Change(RETURNS, (), [cells for cells in returns if cells[0] in new]),
            ]
        )

    @_one_at_a_time
    def settle_results(self) -> None:
        """Give tool calls the results that are in messages."""
        self._connection.execute(_SETTLE_RESULTS)

    @_one_at_a_time
    def compare(self, kind: str, marks: Sequence[tuple[int, int]]) -> list[int]:
        """Delete what is none of these numbers, which are all that there are; return those that are others here."""
        here = dict(cast('list[tuple[int, int]]', self._connection.execute(_SIGNS[kind]).fetchall()))
        gone = here.keys() - {number for number, _ in marks}
        if gone:
            table = _TABLE_OF_KIND[kind]
            self._connection.execute(
                f'DELETE FROM {table} WHERE number IN (SELECT unnest(?::BIGINT[]))',  # noqa: S608
                [sorted(gone)],
            )
            for statement in _ORPHANS:
                self._connection.execute(statement)
        return [number for number, mark in marks if here.get(number) != mark]

    @_one_at_a_time
    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return another connection to the same database, for a query."""
        return self._connection.cursor()

    @_one_at_a_time
    def newest_versions(self) -> dict[int, str]:
        """Return the ids of some versions by their numbers."""
        rows = self._connection.execute('SELECT number, id FROM versions ORDER BY number DESC LIMIT 20').fetchall()
        return dict(rows)

    @_one_at_a_time
    def is_sound(self) -> bool:
        """Return whether it can go on after an error."""
        try:
            self._connection.execute('SELECT 1').fetchall()
        except duckdb.Error:
            return False
        return True

    @_one_at_a_time
    def copy_to(self, table: str, path: Path) -> int:
        """Write a table or a view to a file as Parquet; return how many rows it has."""
        [(count,)] = self._connection.execute(
            f"COPY (SELECT * FROM {table} ORDER BY ALL) TO '{str(path).replace(chr(39), chr(39) * 2)}'"  # noqa: S608
            ' (FORMAT parquet, COMPRESSION zstd)'
        ).fetchall()
        return cast('int', count)

    @_one_at_a_time
    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def _numbers(self, sql: str, parameters: Sequence[object] = ()) -> list[int]:
        return [number for (number,) in self._connection.execute(sql, parameters).fetchall()]


class Query:
    """One query of a caller: `run` it in a thread, `stop` it from anywhere."""

    def __init__(self, sql: str, parameters: Parameters) -> None:
        self._sql = sql
        self._parameters = parameters
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self.is_done = threading.Event()

    def run(self, cursor: duckdb.DuckDBPyConnection) -> Table:
        """Run it, on a cursor that it closes.

        Raises:
            QueryError: It is no single query, or fails.
        """
        self._cursor = cursor
        try:
            cursor.execute('BEGIN TRANSACTION READ ONLY')
            cursor.execute(self._statement(cursor), self._parameters)
            return _fetched(cursor)
        except QueryError:
            raise
        except (duckdb.Error, ValueError, TypeError) as error:
            raise QueryError(_first_paragraph(error)) from error
        finally:
            self._cursor = None
            with suppress(duckdb.Error):
                cursor.close()
            self.is_done.set()

    def stop(self) -> None:
        """Interrupt it, if it runs; one that is about to run takes no notice."""
        cursor = self._cursor
        if cursor is not None:
            cursor.interrupt()

    def _statement(self, cursor: duckdb.DuckDBPyConnection) -> duckdb.Statement:
        """Return the one statement, if it is one that only reads.

        What DuckDB calls a `SELECT` may still write, in a `WITH`: the transaction refuses that. `EXPLAIN` is not
        taken, because `EXPLAIN ANALYZE` runs any statement, `COMMIT` among them.
        """
        statements = cursor.extract_statements(self._sql)
        if len(statements) != 1:
            raise QueryError(f'There are {len(statements)} statements where one query is wanted.')
        if statements[0].type is not duckdb.StatementType.SELECT:
            raise QueryError(
                f'{statements[0].type.name} is not taken: only a query is, such as SELECT, WITH, FROM, DESCRIBE or SHOW. '
                'The replica cannot be changed.'
            )
        return statements[0]


def _fetched(cursor: duckdb.DuckDBPyConnection) -> Table:
    columns = tuple(str(column[0]) for column in cursor.description or ())
    rows: list[tuple[object, ...]] = []
    while chunk := cursor.fetchmany(_FETCHED_ROWS):
        rows += chunk
        if len(rows) > MAX_ROWS:
            raise QueryError(
                f'The query returns more than {MAX_ROWS:,} rows. Aggregate, add a LIMIT, or use `export_parquet`.'
            )
    return Table(columns=columns, rows=tuple(rows))


def _columns(rows: Sequence[Cells]) -> list[list[Cell]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _first_paragraph(error: Exception) -> str:
    return str(error).split('\n\n')[0].strip()
