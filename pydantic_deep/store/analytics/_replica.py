"""The replica: a DuckDB database with the history of a store, in memory or in a disposable file.

A process of its own holds it (`_database`), and writes the rows that `_follower` fetches. Each query of a caller runs
in a fork of that process, in a read-only transaction, without access to anything outside the database and with locked
settings. All calls block: run them in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from time import monotonic
from typing import Concatenate, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

from pydantic_deep.store._sql_limits import SqlLimits
from pydantic_deep.store.errors import QueryError, QueryTimeoutError

from ._cells import Cell, Cells
from ._database import Database, DatabaseError, RunningQuery
from ._database_process import QueryRequest, Settings, Statement
from ._schema import CREATE, MESSAGES, REPLICA_FORMAT, RETURNS, ReplicaTable
from ._store_reads import Survey
from ._table import Table

P = ParamSpec('P')
T = TypeVar('T')

Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
"""The values of `?` or `$1`, or of `$name`, in a query."""

MAX_ROWS: Final = 1_000_000
"""Maximum number of rows of a query: a million rows take some hundred megabytes as Python objects."""

_MEMORY_LIMIT: Final = '2GB'
"""Memory limit of the replica; with a file, further data is spilled to a directory beside it."""

_MAX_TIMEOUT_SECONDS: Final = 10**8
"""Maximum timeout of a kernel timer: three years."""

_MAX_MEMORY_BYTES: Final = 2**50
"""The largest accepted memory limit, in bytes."""

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

_MARK_QUERIES: Final = {
    **{kind: f'SELECT number, 0 AS mark FROM {table}' for kind, table in _TABLE_OF_KIND.items()},  # noqa: S608
    'branch': 'SELECT number, message_count AS mark FROM branches',
    'conversation': 'SELECT c.number AS number, coalesce(v.number, 0) AS mark'
    ' FROM conversations c LEFT JOIN versions v ON v.id = c.head_id',
}
"""Equivalents of the queries in `_store_reads`."""

_UNSETTLED: Final = {
    'run': "state = 'running'",
    'tool_call': "status IN ('started', 'deferred')",
    'approval': "status = 'pending' OR (resumed_by IS NULL AND status NOT IN ('expired', 'superseded'))",
}
"""Conditions of rows that may have changed since they were read."""

_ORPHANS: Final = (
    'DELETE FROM requests WHERE run_id NOT IN (SELECT id FROM runs)',
    'DELETE FROM file_changes WHERE version_id NOT IN (SELECT id FROM versions)',
    'DELETE FROM internal.todo_lists WHERE deps NOT IN (SELECT deps FROM versions WHERE deps IS NOT NULL)',
    'DELETE FROM internal.tool_returns WHERE message NOT IN (SELECT number FROM messages)',
)
"""Statements that remove the dependents of deleted rows."""

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
"""Copies results from messages: a call takes the first matching result after it, because ids of calls repeat."""


class Change(NamedTuple):
    """New rows of one table, and the keys of the rows that they replace."""

    table: ReplicaTable
    keys: Sequence[Cells]
    rows: Sequence[Cells]


def _locked(method: Callable[Concatenate[Replica, P], T]) -> Callable[Concatenate[Replica, P], T]:
    """Serialize calls of the methods: the thread of a cancelled task may still be running one."""

    @wraps(method)
    def locked(self: Replica, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:  # pyright: ignore[reportPrivateUsage] - it decorates methods of this class alone
            return method(self, *args, **kwargs)

    return locked


class Replica:
    """A DuckDB database with the replica's tables.

    Raises:
        DatabaseError: The file is damaged, or is not a replica.
    """

    def __init__(self, path: Path | None = None, *, writable: Path | None = None, keep: Sequence[int] = ()) -> None:
        """Open the database, and create its tables if it has none.

        Args:
            path: The file; `None` for memory.
            writable: A directory that the connection may write to.
            keep: Descriptors that the process keeps open.
        """
        settings: Settings = {
            'autoinstall_known_extensions': 'false',
            'autoload_known_extensions': 'false',
            'allow_community_extensions': 'false',
            'allow_persistent_secrets': 'false',
            'python_enable_replacements': 'false',
            'memory_limit': _MEMORY_LIMIT,
            'temp_directory': '' if path is None else f'{path.absolute()}.tmp',
        }
        self._lock = threading.RLock()
        self._connection = Database(path, settings, [] if writable is None else _confinement(writable), keep=keep)
        try:
            self._prepare()
        except DatabaseError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        has_tables = self._connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'replica'")
        if has_tables:
            formats = self._connection.execute('SELECT format FROM internal.replica')
            if formats == [(REPLICA_FORMAT,)]:
                return
            raise DatabaseError(f'The replica has the format {formats}.')
        create: list[Statement] = [(sql, ()) for sql in CREATE]
        self._connection.run([*create, ('CREATE TABLE internal.replica AS SELECT ? AS format', [REPLICA_FORMAT])])

    @_locked
    def survey(self) -> dict[str, Survey]:
        """Return the survey of each kind."""
        parts = (
            f"SELECT '{kind}', count(*), coalesce(max(number), 0), coalesce(sum(mark), 0)::BIGINT FROM ({sql})"  # noqa: S608
            for kind, sql in _MARK_QUERIES.items()
        )
        rows = self._connection.execute(' UNION ALL '.join(parts))
        return {kind: Survey(count, last, mark_sum) for kind, count, last, mark_sum in rows}

    @_locked
    def unsettled(self) -> dict[str, list[int]]:
        """Return the numbers of the rows that may have changed since they were read."""
        return {
            kind: self._numbers(f'SELECT number FROM {_TABLE_OF_KIND[kind]} WHERE {condition} ORDER BY number')  # noqa: S608
            for kind, condition in _UNSETTLED.items()
        }

    @_locked
    def tips(self, branches: Sequence[int]) -> dict[int, int]:
        """Return the message counts of those of the branches that the replica has, keyed by number."""
        rows = self._connection.execute(
            'SELECT number, message_count FROM branches WHERE number IN (SELECT unnest(?::BIGINT[]))', [list(branches)]
        )
        return dict(rows)

    @_locked
    def unknown_deps(self, digests: Iterable[str]) -> list[str]:
        """Return the digests of deps that no version in the replica has."""
        rows = self._connection.execute(
            'SELECT unnest(?::VARCHAR[]) EXCEPT SELECT deps FROM versions', [sorted(set(digests))]
        )
        return [digest for (digest,) in rows]

    @_locked
    def apply(self, changes: Iterable[Change]) -> None:
        """Apply all changes in one transaction."""
        statements: list[Statement] = []
        for table, keys, rows in changes:
            if keys:
                statements.append((table.delete_sql, _columns(keys)))
            if rows:
                statements.append((table.insert_sql, _columns(rows)))
        self._connection.run(statements)

    @_locked
    def add_messages(self, messages: Mapping[int, Cells], returns: Sequence[Cells]) -> None:
        """Add the messages, keyed by number, that are missing: some may have been added with another branch."""
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

    @_locked
    def settle_results(self) -> None:
        """Copy results of tool calls from messages to the calls."""
        self._connection.execute(_SETTLE_RESULTS)

    @_locked
    def compare(self, kind: str, marks: Sequence[tuple[int, int]]) -> list[int]:
        """Delete the rows that `marks`, a complete list, does not contain; return the numbers with different marks."""
        mark_by_number = dict(cast('list[tuple[int, int]]', self._connection.execute(_MARK_QUERIES[kind])))
        deleted = mark_by_number.keys() - {number for number, _ in marks}
        if deleted:
            table = _TABLE_OF_KIND[kind]
            self._connection.execute(
                f'DELETE FROM {table} WHERE number IN (SELECT unnest(?::BIGINT[]))',  # noqa: S608
                [sorted(deleted)],
            )
            for statement in _ORPHANS:
                self._connection.execute(statement)
        return [number for number, mark in marks if mark_by_number.get(number) != mark]

    def start_query(self, request: QueryRequest) -> RunningQuery:
        """Start a caller's query."""
        return self._connection.start_query(request)

    @_locked
    def newest_versions(self) -> dict[int, str]:
        """Return the ids of the newest versions, keyed by number."""
        rows = self._connection.execute('SELECT number, id FROM versions ORDER BY number DESC LIMIT 20')
        return dict(rows)

    @_locked
    def is_usable(self) -> bool:
        """Return whether the database can still be used after an error."""
        try:
            self._connection.execute('SELECT 1')
        except DatabaseError:
            return False
        return True

    @_locked
    def copy_to(self, table: str, path: Path) -> int:
        """Export a table or a view to a Parquet file; return the number of rows."""
        [(count,)] = self._connection.execute(
            f"COPY (SELECT * FROM {table} ORDER BY ALL) TO '{str(path).replace(chr(39), chr(39) * 2)}'"  # noqa: S608
            ' (FORMAT parquet, COMPRESSION zstd)'
        )
        return cast('int', count)

    @_locked
    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _numbers(self, sql: str, parameters: Sequence[object] = ()) -> list[int]:
        return [number for (number,) in self._connection.execute(sql, parameters)]


class Query:
    """One query of a caller. Call `run` in a thread; `stop` may be called from any thread."""

    def __init__(self, sql: str, parameters: Parameters, limits: SqlLimits, max_rows: int | None) -> None:
        self._limits = limits
        self._request = QueryRequest(
            sql=sql,
            parameters=dict(parameters) if isinstance(parameters, Mapping) else list(parameters),
            timeout_seconds=min(limits.timeout_seconds, _MAX_TIMEOUT_SECONDS),
            memory_bytes=min(limits.memory_bytes, _MAX_MEMORY_BYTES),
            max_bytes=limits.max_bytes,
            max_rows=MAX_ROWS if max_rows is None else max_rows,
            may_truncate=max_rows is not None,
        )
        self._running: RunningQuery | None = None
        self._is_stopped = False

    def run(self, replica: Replica) -> Table:
        """Run the query.

        Raises:
            QueryError: The query is not a single one, fails, or exceeds its limits.
        """
        started = monotonic()
        try:
            with replica.start_query(self._request) as running:
                self._running = running
                if self._is_stopped:
                    running.end()
                return self._table(running)
        except EOFError:
            raise self._abort_error(monotonic() - started) from None
        except QueryError:
            raise
        except (DatabaseError, OSError, ValueError) as error:
            raise QueryError(str(error)) from error

    def stop(self) -> None:
        """End the query, even if it has not started yet."""
        self._is_stopped = True
        if self._running is not None:
            self._running.end()

    def _table(self, running: RunningQuery) -> Table:
        columns: tuple[str, ...] = ()
        rows: list[tuple[object, ...]] = []
        while True:
            kind, value = running.next(self._request.max_bytes)
            if kind == 'columns':
                columns = tuple(value)
            elif kind == 'rows':
                rows.extend(map(tuple, value))
            elif kind == 'end':
                return Table(columns=columns, rows=tuple(rows), is_truncated=value)
            else:
                raise QueryError(self._error_text(kind, value))

    def _error_text(self, kind: str, text: str) -> str:
        if kind == 'memory':
            return f'{text.rstrip(".")}. {self._memory}'
        if kind == 'too large':
            return f'{text} Aggregate, add a LIMIT, or use `export_parquet`.'
        return text

    def _abort_error(self, seconds: float) -> QueryError:
        limit = self._limits.timeout_seconds
        if seconds >= limit:
            return QueryTimeoutError(
                f'The query was killed after {limit:g} s, its `timeout_seconds`. Simplify it, or allow more time: '
                '`limits=SqlLimits(timeout_seconds=…)` in Python, `sql_timeout_seconds` on a server, `--timeout` at the '
                'command line.'
            )
        return QueryError(f'The process of the query ended without a result. {self._memory}')

    @property
    def _memory(self) -> str:
        return (
            f'A query may take {self._limits.memory_bytes / 2**20:g} MiB, its `memory_bytes`. Simplify it, or allow '
            'more: `limits=SqlLimits(memory_bytes=…)` in Python, `sql_memory_bytes` on a server.'
        )


def _confinement(directory: Path) -> list[Statement]:
    """Return statements that confine a connection to one directory."""
    return [
        ('SET allowed_directories = [?]', [f'{directory}/']),
        ('SET enable_external_access = false', ()),
        ('SET lock_configuration = true', ()),
    ]


def _columns(rows: Sequence[Cells]) -> list[list[Cell]]:
    return [list(column) for column in zip(*rows, strict=True)]
