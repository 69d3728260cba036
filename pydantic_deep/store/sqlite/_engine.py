"""The store in one file: SQLite in WAL mode, shared by many processes, durable when a commit returns."""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import sqlite3
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar, cast
from urllib.parse import quote

from pydantic_deep.store._fork_guard import ForkGuard
from pydantic_deep.store.engine import Operation, WriteNeededError, only_reading
from pydantic_deep.store.errors import (
    StoreClosedError,
    StoreCorruptedError,
    StoreError,
    StoreFormatError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from pydantic_deep.store.sql._migrations import migrate
from pydantic_deep.store.sql.dialect import SQLITE, Dialect, Tables

from ._errors import translate_error
from ._owner_lock import OwnerLock, OwnerWatch
from ._threads import Job, ReaderThread, WriterThread, run_operation

T = TypeVar('T')

_BUSY_SECONDS: Final = 60.0
"""How long SQLite retries while another process writes; a transaction takes milliseconds."""

_CREATE_LOCK: Final = threading.Lock()
"""Held while a descriptor of a new file is open."""

_READERS: Final = 2
"""Number of reader threads. More would compete for Python's lock."""

_CACHED_STATEMENTS: Final = 256

_NO_INDEX: Final = (sqlite3.SQLITE_READONLY_DIRECTORY, sqlite3.SQLITE_CANTOPEN)
"""Error codes of SQLite if the index of a log is missing and cannot be created."""

_CACHE_KIB: Final = 16_384
"""Page cache of each connection in use: a lineage of 10,000 versions reads about 4 MB; SQLite's default is 2 MB."""

_PAGE_BYTES: Final = 1024
"""Page size of a new file. Compressed content of one or two kilobytes, as is usual, would leave a third of a larger
page empty. Measured with 200 turns and a file of 4 KB each: 2.2 MB; with 2048 it is 2.5 MB, with SQLite's 4096 2.6.
"""


class SqliteEngine:
    """SQLite in a file, opened with `await SqliteEngine.open(path)`.

    One thread writes. It commits all pending writes in one transaction, with a single `fsync` (`synchronous=FULL`).
    Other threads read concurrently. If the process crashes, nothing is left half written, and its lock in `FILE.owners`
    is released immediately.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        owners = Path(f'{path}.owners')
        self._path = path
        self._owner = OwnerWatch(owners) if read_only else OwnerLock(owners)
        self._fork_guard = ForkGuard()
        self._lock = threading.Lock()
        self._writes: queue.SimpleQueue[Job[object] | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Job[object] | None] = queue.SimpleQueue()
        self._writer = None if read_only else WriterThread(partial(connect, path), self._writes)
        reads = partial(ReadOnlyThread, path) if read_only else partial(ReaderThread, partial(connect, path))
        self._readers = [reads(self._reads) for _ in range(_READERS)]
        self._is_closed = False

    @classmethod
    async def open(cls, path: Path, tables: Tables = migrate, *, read_only: bool = False) -> Self:
        """Open a file, creating it with mode 0600 if it is missing, and bring its tables up to date.

        Symbolic links and the working directory are resolved once, here. No write lock is taken if the tables are up to
        date.

        Args:
            path: The file.
            tables: Brings the tables up to date; those of a store by default.
            read_only: Whether to refuse writes. The file must then exist, and neither it nor its directory needs to be
                writable.

        Raises:
            StoreFormatError: The file is not a store, is of a newer release, or, with `read_only`, of an older one.
            StoreUnavailableError: The file cannot be opened or written.
        """
        try:
            resolved = Path(os.path.realpath(path))  # noqa: ASYNC240 - the directory may change during an await
            return await asyncio.to_thread(cls._open, resolved, tables, read_only)
        except OSError as error:
            if isinstance(error, StoreUnavailableError):
                raise
            access = 'read' if read_only else 'written'
            raise StoreUnavailableError(
                f'{str(path)!r}: {error.strerror}. Make sure that its directory exists and that both can be {access}.'
            ) from error

    @classmethod
    def _open(cls, path: Path, tables: Tables, read_only: bool) -> Self:
        _ensure_file(path, may_create=not read_only)
        if read_only:
            prepare_read_only(path, tables)
        else:
            prepare(path, tables)
        return cls(path, read_only=read_only)

    @property
    def url(self) -> str:
        """The URL that opens this file again."""
        return f'sqlite:///{self._path}'

    @property
    def dialect(self) -> Dialect:
        """The dialect of SQLite."""
        return SQLITE

    @property
    def owner(self) -> str:
        """A name that is unique among all open stores on the same file."""
        return self._owner.owner

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run a read-only operation on one consistent snapshot."""
        return await self._put(self._reads, operation)

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation, and return once it is durable."""
        if self._writer is None:
            raise StoreReadOnlyError(f'The store {self.url!r} is read-only. Open it without `read_only`.')
        return await self._put(self._writes, operation)

    async def write_unsynced(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `write`."""
        return await self.write(operation)

    async def write_alone(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `write`: all writes are serialized, across all processes."""
        return await self.write(operation)

    async def wait_for_writes(self) -> bool:
        """Return `False`: writes are serialized, so that rows become visible in the order of their numbers."""
        return False

    async def read_with_tables(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `read`: temporary tables are not part of the file."""
        return await self.read(operation)

    async def living_owners(self, owners: Sequence[str]) -> set[str]:
        """Return the owners that have the file open."""
        self._fork_guard.check(self.url)
        return await asyncio.to_thread(self._owner.living, owners)

    async def aclose(self) -> None:
        """Complete pending jobs, end the threads and release the lock; in a forked child, only stop using them."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if not self._fork_guard.is_child:
            await asyncio.shield(asyncio.to_thread(self._end))

    def _end(self) -> None:
        """End the readers, then the writer: SQLite merges its log into the file when the last connection is closed
        alone.
        """
        for _ in self._readers:
            self._reads.put(None)
        for reader in self._readers:
            reader.join()
        if self._writer is not None:
            self._writes.put(None)
            self._writer.join()
        self._owner.release()

    async def _put(self, jobs: queue.SimpleQueue[Job[object] | None], operation: Callable[[], Operation[T]]) -> T:
        self._fork_guard.check(self.url)
        loop = asyncio.get_running_loop()
        job = Job(operation, loop.create_future(), loop)
        with self._lock:  # otherwise `aclose` in another thread could leave the job without a worker
            if self._is_closed:
                raise StoreClosedError(f'The store {self.url!r} was closed. Open it again with `open_store`.')
            jobs.put(cast('Job[object]', job))
        return await job.future


def _ensure_file(path: Path, *, may_create: bool) -> None:
    """Create the file if it is missing, readable by its user alone, and refuse hard links. Raises `OSError`.

    An existing file is not opened here: POSIX releases all locks of a process on a file when the process closes any
    descriptor of it, and the connections of other stores depend on theirs. Without these locks, another process that
    closes the file would consider itself the last, and remove the log to which this process is still writing.
    """
    with _CREATE_LOCK:
        if may_create and not path.exists():
            with suppress(FileExistsError):  # another process was faster
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not os.access(path, os.R_OK | (os.W_OK if may_create else 0)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if status.st_nlink > 1:
        raise StoreUnavailableError(
            f'The file of the store {str(path)!r} has {status.st_nlink} names (hard links). SQLite keeps a log beside '
            'each name, and would lose data that was written under another one. Remove the others, or open a copy.'
        )


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection with our settings. Raises `sqlite3.Error`."""
    return _configured(_connection(path), 'PRAGMA synchronous = FULL')


def _connection(path: Path, query: str = 'mode=rw') -> sqlite3.Connection:
    """Open a connection; `query` is the query of a SQLite URI."""
    return sqlite3.connect(
        f'file:{quote(str(path))}?{query}',
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_CACHED_STATEMENTS,
    )


def _configured(connection: sqlite3.Connection, *pragmas: str) -> sqlite3.Connection:
    try:
        for pragma in (*pragmas, 'PRAGMA temp_store = MEMORY', f'PRAGMA cache_size = -{_CACHE_KIB}'):
            connection.execute(pragma)
    except sqlite3.Error:  # the file is damaged
        connection.close()
        raise
    except UnicodeDecodeError as error:  # the damage extends to the name in SQLite's message
        connection.close()
        raise sqlite3.DatabaseError('the schema contains invalid UTF-8') from error
    return connection


def prepare(path: Path, tables: Tables = migrate) -> None:
    """Ensure that a file has current tables and is in WAL mode, without a write lock if it already is."""
    try:
        with closing(connect(path)) as connection:
            if _is_current(connection, tables):
                return
            connection.execute(f'PRAGMA page_size = {_PAGE_BYTES}')
            connection.execute('BEGIN IMMEDIATE')
            run_operation(connection, tables(SQLITE))
            connection.execute('COMMIT')
            connection.execute('PRAGMA journal_mode = WAL')
    except sqlite3.Error as error:
        raise _opening_error(error, path) from error


def prepare_read_only(path: Path, tables: Tables) -> None:
    """Ensure that a file has current tables.

    Raises:
        StoreFormatError: The tables are missing or outdated.
    """
    try:
        with closing(connect_read_only(path)) as connection:
            connection.execute('BEGIN')
            run_operation(connection, only_reading(tables(SQLITE)))
    except WriteNeededError:
        raise StoreFormatError(
            f'The database {str(path)!r} is empty or has the tables of an older release. Open it once without '
            '`read_only` to bring it up to date.'
        ) from None
    except sqlite3.Error as error:
        raise _opening_error(error, path) from error


def _is_current(connection: sqlite3.Connection, tables: Tables) -> bool:
    """Return whether a file has current tables and is in WAL mode."""
    connection.execute('BEGIN')
    try:
        run_operation(connection, only_reading(tables(SQLITE)))
    except WriteNeededError:
        return False
    finally:
        connection.execute('ROLLBACK')
    return connection.execute('PRAGMA journal_mode').fetchone() == ('wal',)


def _opening_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the store error for an SQLite error. A file that used to be a store and is not a database counts as damaged."""
    new = translate_error(error)
    if not isinstance(new, StoreFormatError):
        return new
    if Path(f'{path}.owners').is_dir():
        return StoreCorruptedError(None, None, f'{str(path)!r} is no longer a SQLite database')
    return StoreFormatError(f'{str(path)!r} is not a SQLite database. Choose another file.')


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a connection that never writes, even on a read-only file system. Raises `sqlite3.Error`."""
    try:
        return _configured(_connection(path, 'mode=ro'), 'PRAGMA query_only = ON', 'SELECT 1 FROM sqlite_master')
    except sqlite3.OperationalError as error:
        if not _is_checkpointed(error, path):
            raise
    return _configured(_connection(path, 'mode=ro&immutable=1'))


def _is_checkpointed(error: sqlite3.OperationalError, path: Path) -> bool:
    """Return whether the log is empty, so that only its index could not be created beside the file."""
    log = Path(f'{path}-wal')
    code = error.sqlite_errorcode
    return code in _NO_INDEX and not (log.exists() and log.stat().st_size)


class ReadOnlyThread(ReaderThread):
    """A reader of a file that cannot be written. If no log can be shared, each operation uses a new connection."""

    def __init__(self, path: Path, jobs: queue.SimpleQueue[Job[object] | None]) -> None:
        self._path = path
        super().__init__(partial(connect_read_only, path), jobs)

    def _work(self, job: Job[object]) -> bool:
        is_last = super()._work(job)
        if not os.access(self._path.parent, os.W_OK):
            self._disconnect()  # SQLite does not notice writes by others to a file that it treats as immutable
        return is_last
