"""The process that holds a DuckDB database, and the encoding of the values exchanged with it.

`_database` starts it as a script that imports only the standard library and `_duckdb`. Our own statements run in it one
at a time. Each query of a caller runs in a fork of it: a snapshot of the database without a copy, with limits that the
kernel enforces, which can be killed safely at any time.

`_duckdb` is the extension module behind the package `duckdb`, and takes a fraction of the time to import.

Forking requires a process with a single thread, so DuckDB has no threads of its own here; it has some in the forks.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast
from uuid import UUID

if TYPE_CHECKING:
    import _duckdb as duckdb

Settings: TypeAlias = dict[str, str | bool | int | float | list[str]]

Statement: TypeAlias = tuple[str, Any]
"""SQL and the values of its parameters."""

FETCHED_ROWS: Final = 2048
"""Number of rows per message: a vector of DuckDB."""

_HEADER: Final = struct.Struct('!Q')
"""Header of a message: its length in bytes."""

_MAX_ERROR_CHARS: Final = 10_000
"""Maximum length of an error text: a query can produce one of any length."""

_THREADS: Final = 4
"""Maximum number of threads of a query, as the machine has other work."""

_STEP_BYTES: Final = 16 * 2**20
"""The memory used by the tables is rounded up to a multiple of this."""

_DUCKDB_SHARE: Final = 0.8
"""Share of a query's memory that DuckDB may use by its own accounting. Temporary texts are not included: they have to fit
in the rest, and everything together within the limit of the kernel."""

_WAL_BYTES: Final = 16 * 2**20
"""Length of the log at which it is checkpointed, as in DuckDB by default."""

_NEVER: Final = {'wal_autocheckpoint': '1000000GB', 'auto_checkpoint_skip_wal_threshold': str(2**62)}
"""Settings that disable DuckDB's automatic checkpoints, which would change the file under a fork that reads it."""

_SINGLE_THREAD: Final = {'threads': '1', 'async_threads': '0'}


class QueryRequest(NamedTuple):
    """A query with its limits."""

    sql: str
    parameters: Any
    """The values of the parameters: a list or a dict."""
    timeout_seconds: float
    memory_bytes: int
    max_bytes: int
    """Maximum size of the result, both in Python and as sent."""
    max_rows: int
    may_truncate: bool
    """Whether further rows than `max_rows` are omitted; otherwise they raise an error."""


class TooLargeError(Exception):
    """The result is larger than allowed."""


def encode(value: object) -> bytes:
    """Return a value as JSON in which every object is tagged with its type.

    Raises:
        ValueError: The value contains an unsupported type.
    """
    try:
        return _encode(_with_tags(value))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _encode(value: object) -> bytes:
    """Return a value as JSON; remaining tuples become arrays."""
    text = json.dumps(value, default=_to_tag, ensure_ascii=False, separators=(',', ':'))
    return text.encode('utf-8', 'surrogatepass')


def decode(data: bytes) -> object:
    """Return the value that `encode` encoded.

    Raises:
        ValueError: The data is not the result of `encode`.
    """
    try:
        return json.loads(data, object_hook=_from_tag)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f'{type(error).__name__}: {error}') from None


def size_of(value: object) -> int:
    """Return the size of a value in memory, in bytes."""
    if isinstance(value, Mapping):
        items: object = chain.from_iterable(cast('Mapping[object, object]', value).items())
    elif isinstance(value, list | tuple):
        items = cast('Sequence[object]', value)
    else:
        return sys.getsizeof(value)
    return sys.getsizeof(cast('object', value)) + sum(map(size_of, cast('Sequence[object]', items)))


def send(file: int, message: object) -> None:
    """Write a message to a pipe."""
    send_bytes(file, encode(message))


def send_bytes(file: int, data: bytes) -> None:
    """Write an encoded message to a pipe."""
    remaining = memoryview(_HEADER.pack(len(data)) + data)
    while remaining:
        remaining = remaining[os.write(file, remaining) :]


def send_to(control: socket.socket, message: object, files: Sequence[int] = ()) -> None:
    """Send a message over a socket, with file descriptors."""
    data = encode(message)
    socket.send_fds(control, [_HEADER.pack(len(data))], files)
    control.sendall(data)


def receive_from(control: socket.socket) -> tuple[object, list[int]]:
    """Return the next message of a socket, with its file descriptors.

    Raises:
        EOFError: The socket was closed.
    """
    header, files, _, _ = socket.recv_fds(control, _HEADER.size, 2)
    header += _read(control.recv, _HEADER.size - len(header))
    return decode(_read(control.recv, _HEADER.unpack(header)[0])), files


def receive(file: int, max_bytes: int) -> object:
    """Return the next message of a pipe.

    Raises:
        EOFError: The pipe was closed.
        ValueError: The message is too long or malformed.
    """

    def read(count: int) -> bytes:
        return os.read(file, count)

    (length,) = _HEADER.unpack(_read(read, _HEADER.size))
    if length > max_bytes:
        raise ValueError(f'A message of {length} bytes is too large.')
    return decode(_read(read, length))


def _read(read: Callable[[int], bytes], count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = read(min(count - len(data), 2**20))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def _with_tags(value: object) -> object:
    """Return a value in which types that JSON cannot represent are tagged."""
    if isinstance(value, Mapping):
        pairs = cast('Mapping[object, object]', value).items()
        return _Tag('dict', [[_with_tags(key), _with_tags(item)] for key, item in pairs])
    if isinstance(value, tuple):
        return _Tag('tuple', [_with_tags(item) for item in cast('tuple[object, ...]', value)])
    if isinstance(value, list):
        return [_with_tags(item) for item in cast('list[object]', value)]
    return value


class _Tag:
    """A value that is written as an object with the name of its type."""

    def __init__(self, kind: str, value: object) -> None:
        self.kind = kind
        self.value = value


def _to_tag(value: object) -> object:
    match value:
        case _Tag():
            return {value.kind: value.value}
        case datetime():
            return {'datetime': value.isoformat()}
        case date():
            return {'date': value.isoformat()}
        case time():
            return {'time': value.isoformat()}
        case timedelta():
            return {'timedelta': [value.days, value.seconds, value.microseconds]}
        case Decimal():
            return {'decimal': str(value)}
        case UUID():
            return {'uuid': value.hex}
        case bytes() | bytearray() | memoryview():
            return {'bytes': value.hex()}
        case _:
            raise TypeError(f'A value of the type {type(value).__name__} cannot be bound.')


_VALUE_OF_TAG: Final[dict[str, Callable[[Any], object]]] = {
    'dict': lambda pairs: dict(pairs),
    'tuple': lambda items: tuple(items),
    'datetime': datetime.fromisoformat,
    'date': date.fromisoformat,
    'time': time.fromisoformat,
    'timedelta': lambda parts: timedelta(*parts),
    'decimal': Decimal,
    'uuid': UUID,
    'bytes': bytes.fromhex,
}


def _from_tag(tag: dict[str, Any]) -> object:
    [(kind, value)] = tag.items()
    return _VALUE_OF_TAG[kind](value)


def run_query(cursor: duckdb.DuckDBPyConnection, request: QueryRequest, out: int) -> None:
    """Run a query in a read-only transaction, and write its columns, rows and outcome to a pipe."""
    import _duckdb as duckdb

    try:
        cursor.execute('BEGIN TRANSACTION READ ONLY')
        cursor.execute(_statement(cursor, request.sql), request.parameters)
        _send_rows(cursor, request, out)
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        send(out, ['memory', _error_text(error)])
    except TooLargeError as error:
        send(out, ['too large', str(error)])
    except (duckdb.Error, ValueError, TypeError, RecursionError) as error:
        send(out, ['failed', _error_text(error)])


def _statement(cursor: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """Return the only statement, if it is read-only.

    A statement that DuckDB classifies as `SELECT` may still write, in a `WITH`; the transaction refuses that. `EXPLAIN`
    is not accepted, because `EXPLAIN ANALYZE` runs any statement, including `COMMIT`.
    """
    statements = cursor.extract_statements(sql)
    if len(statements) != 1:
        raise ValueError(f'There are {len(statements)} statements; pass one query.')
    if statements[0].type.name != 'SELECT':
        raise ValueError(
            f'{statements[0].type.name} is not allowed: use a query, such as SELECT, WITH, FROM, DESCRIBE or SHOW. '
            'The replica cannot be changed.'
        )
    return statements[0]


def _send_rows(cursor: duckdb.DuckDBPyConnection, request: QueryRequest, out: int) -> None:
    columns = [str(column[0]) for column in cursor.description or ()]
    send(out, ['columns', columns])
    size, count = size_of(columns), 0
    while rows := cursor.fetchmany(FETCHED_ROWS):
        remaining = request.max_rows - count
        count += len(rows)
        is_more = len(rows) > remaining
        if is_more and not request.may_truncate:
            raise TooLargeError(f'The query returns more than {request.max_rows:,} rows.')
        rows = rows[:remaining]
        size += _size_of_rows(rows)
        data = _encode_rows(rows) if size <= request.max_bytes else b''
        if max(size, len(data)) > request.max_bytes:
            raise TooLargeError(f'The result takes more than {request.max_bytes:,} bytes.')
        send_bytes(out, data)
        if is_more:
            break
    send(out, ['end', count > request.max_rows])


def _size_of_rows(rows: Sequence[tuple[object, ...]]) -> int:
    cells = list(chain.from_iterable(rows))
    sizes = map(size_of if _has_nested(rows) else sys.getsizeof, cells)
    return sum(sizes) + sum(map(sys.getsizeof, rows))


def _encode_rows(rows: Sequence[tuple[object, ...]]) -> bytes:
    """Return a message with rows. Most rows have no nested values, and are encoded in one call."""
    return encode(['rows', list(map(list, rows))]) if _has_nested(rows) else _encode(['rows', rows])


def _has_nested(rows: Sequence[tuple[object, ...]]) -> bool:
    return not {dict, list, tuple}.isdisjoint(map(type, chain.from_iterable(rows)))


def _error_text(error: Exception) -> str:
    return str(error).split('\n\n')[0].strip()[:_MAX_ERROR_CHARS]


# Ends or limits the calling process, for which coverage cannot be measured.
def confine(connection: duckdb.DuckDBPyConnection, request: QueryRequest, cancel_fd: int) -> None:  # pragma: no cover
    """Limit the lifetime and resources of this process, and end it as soon as a pipe is closed.

    The kernel enforces all of it, without depending on a thread being scheduled.
    """
    import fcntl  # which Windows lacks, like `resource`
    import resource

    import _duckdb as duckdb

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    fcntl.fcntl(cancel_fd, fcntl.F_SETOWN, os.getpid())
    # The kernel sends SIGIO, which ends the process, when the pipe is closed.
    fcntl.fcntl(cancel_fd, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    if select.select([cancel_fd], [], [], 0)[0]:
        os._exit(0)
    signal.setitimer(signal.ITIMER_REAL, request.timeout_seconds)  # SIGALRM also ends the process
    [(used,)] = connection.execute('SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory()').fetchall()
    limit = -(-used // _STEP_BYTES) * _STEP_BYTES + int(request.memory_bytes * _DUCKDB_SHARE)
    with suppress(duckdb.Error):  # once the process has written to it, it cannot be changed any more
        connection.execute("SET temp_directory = ''")
    for setting in (
        f'threads = {_THREADS}',
        f"memory_limit = '{limit}B'",
        "max_temp_directory_size = '0KB'",  # files there would outlive a killed process
        'enable_external_access = false',
        'lock_configuration = true',
    ):
        connection.execute(f'SET {setting}')
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bound = data_bytes() + request.memory_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def data_bytes(statm: Path = Path('/proc/self/statm')) -> int:
    """Return the size of this process's private memory; 0 if the kernel does not report it, and enforces no limit."""
    import resource

    try:
        return int(statm.read_text().split()[5]) * resource.getpagesize()
    except OSError:
        return 0


def reap_children() -> bool:
    """Reap the forks that have ended; return whether any still runs."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _reap_on_signal(number: int, frame: object) -> None:  # pragma: no cover - as above
    reap_children()


class DatabaseServer:
    """The open database, and its request handlers."""

    def __init__(self, path: str | None, settings: Settings, setup: Sequence[Statement]) -> None:
        import _duckdb as duckdb

        self._connection = duckdb.connect(
            ':memory:' if path is None else path, config=settings | _SINGLE_THREAD | _NEVER
        )
        self._log = None if path is None else Path(f'{path}.wal')
        for sql, parameters in setup:
            self._connection.execute(sql, parameters)

    def run(self, statements: Sequence[Statement]) -> list[tuple[object, ...]]:
        """Run statements in one transaction; return the rows of the last."""
        rows: list[tuple[object, ...]] = []
        self._connection.begin()
        try:
            for sql, parameters in statements:
                rows = self._connection.execute(sql, parameters).fetchall()
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()
        self._checkpoint()
        return rows

    def _checkpoint(self) -> None:
        """Checkpoint the log if it is long and no fork reads the file."""
        with suppress(FileNotFoundError):
            if self._log is not None and self._log.stat().st_size > _WAL_BYTES and not reap_children():
                self._connection.execute('CHECKPOINT')

    def fork_query(self, request: QueryRequest, out: int, cancel_fd: int, control: socket.socket) -> None:
        """Run a query in a fork of this process, and close the query's descriptors here."""
        try:
            if not os.fork():
                try:
                    control.close()
                    confine(self._connection, request, cancel_fd)
                    run_query(self._connection.cursor(), request, out)
                finally:
                    os._exit(0)
        except OSError as error:
            with suppress(BrokenPipeError):
                send(out, ['failed', f'No process can be started for the query: {error.strerror}.'])
        finally:
            os.close(out)
            os.close(cancel_fd)

    def close(self) -> None:
        """Close the database once all forks have ended. Their callers are gone, so they end too."""
        while reap_children():
            with suppress(ChildProcessError):
                os.waitpid(-1, 0)
        self._connection.close()


def serve(control: socket.socket) -> None:
    """Serve requests from a socket until it is closed. The first message names the database to open."""
    import _duckdb as duckdb

    with suppress(EOFError, ConnectionError):
        opening, _ = receive_from(control)
        try:
            server = DatabaseServer(*cast('tuple[str, Settings, list[Statement]]', opening))
        except duckdb.Error as error:
            send_to(control, ['failed', str(error)])
            return
        try:
            send_to(control, ('done', None))
            while True:
                request, files = receive_from(control)
                if files:
                    server.fork_query(QueryRequest(*cast('list[Any]', request)), files[0], files[1], control)
                else:
                    send_to(control, _reply(server, cast('list[Statement]', request)))
        finally:
            server.close()


def _reply(server: DatabaseServer, statements: list[Statement]) -> list[object]:
    import _duckdb as duckdb

    try:
        return ['done', server.run(statements)]
    except (duckdb.Error, ValueError, TypeError, MemoryError) as error:
        return ['failed', str(error)]


if __name__ == '__main__':  # pragma: no cover - coverage of this process is not measured
    sys.path += sys.argv[2:]
    signal.signal(signal.SIGCHLD, _reap_on_signal)
    serve(socket.socket(fileno=int(sys.argv[1])))
