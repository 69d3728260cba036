"""The store in one file: SQLite in WAL mode, many processes at once, durable when a commit returns."""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar, cast

from ._engine import Operation
from ._owners import OwnerLock
from ._schema import SQLITE, Dialect, Tables, migrate
from ._sqlite_errors import translated
from ._work import Job, Reader, Writer, run_operation
from .errors import StoreClosedError, StoreUnavailableError

T = TypeVar('T')

_BUSY_SECONDS: Final = 60.0
"""How long SQLite asks again while another process writes; each of its transactions takes milliseconds."""

_READERS: Final = 2
"""Threads that read. More would wait for Python's lock."""

_CACHED_STATEMENTS: Final = 256

_CACHE_KIB: Final = 16_384
"""Of pages, for each connection that is used: a lineage of 10,000 versions reads about 4 MB, and SQLite's own is 2."""

_PAGE_BYTES: Final = 1024
"""Of a new file. Contents of one or two kilobytes, as most are when they are compressed, leave a third of a larger page
empty. Measured with 200 turns and a file of 4 KB each: 2.2 MB; with 2048 it is 2.5 MB, with SQLite's 4096 2.6."""


class SqliteEngine:
    """SQLite in a file. Make it with `await SqliteEngine.open(path)`.

    One thread writes and commits what waits in one transaction: that is one `fsync` for all of them
    (`synchronous=FULL`). Others read at the same time. A process that dies leaves nothing half done, and its lock in
    `FILE.owners` is free at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._owner = OwnerLock(Path(f'{path}.owners'))
        self._writes: queue.SimpleQueue[Job[object] | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[Job[object] | None] = queue.SimpleQueue()
        self._writer = Writer(self._connect, self._writes)
        self._readers = [Reader(self._connect, self._reads) for _ in range(_READERS)]
        self._is_closed = False

    @classmethod
    async def open(cls, path: Path, tables: Tables = migrate) -> Self:
        """Open a file, which is made with mode 0600 if there is none, and bring its tables up to date.

        Args:
            path: The file.
            tables: What does so: those of a store, if left out.

        Raises:
            StoreFormatError: The file is something else, or of a newer release.
            StoreUnavailableError: It cannot be opened or written.
        """
        return await asyncio.to_thread(cls._open, path, tables)

    @classmethod
    def _open(cls, path: Path, tables: Tables) -> Self:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            prepare(path, tables)
            return cls(path)
        except OSError as error:
            if isinstance(error, StoreUnavailableError):
                raise
            raise StoreUnavailableError(
                f'The store {str(path)!r} cannot be opened: {error.strerror}. Make sure that its directory exists and '
                'that both can be written.'
            ) from error

    @property
    def url(self) -> str:
        """What opens it again."""
        return f'sqlite:///{self._path}'

    @property
    def dialect(self) -> Dialect:
        """That of SQLite."""
        return SQLITE

    @property
    def owner(self) -> str:
        """Names this open store among all on the same file."""
        return self._owner.owner

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation that changes nothing, on one consistent state."""
        return await self._put(self._reads, operation)

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation, and return when it is durable."""
        return await self._put(self._writes, operation)

    async def living_owners(self, owners: Sequence[str]) -> set[str]:
        """Return those of the owners whose process has the file open."""
        return await asyncio.to_thread(self._owner.living, owners)

    async def aclose(self) -> None:
        """Finish what waits, end the threads, release the lock."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.shield(asyncio.to_thread(self._end))

    def _end(self) -> None:
        """End the readers, then the writer: SQLite brings its log into the file when the last connection closes alone."""
        for _ in self._readers:
            self._reads.put(None)
        for reader in self._readers:
            reader.join()
        self._writes.put(None)
        self._writer.join()
        self._owner.release()

    async def _put(self, jobs: queue.SimpleQueue[Job[object] | None], operation: Callable[[], Operation[T]]) -> T:
        if self._is_closed:
            raise StoreClosedError(f'The store {self.url!r} was closed. Open it again with `open_store`.')
        loop = asyncio.get_running_loop()
        job = Job(operation, loop.create_future(), loop)
        jobs.put(cast('Job[object]', job))
        return await job.future

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path)


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection with our settings. Raises `sqlite3.Error`."""
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_CACHED_STATEMENTS,
    )
    try:
        connection.execute('PRAGMA synchronous = FULL')
        connection.execute('PRAGMA temp_store = MEMORY')
        connection.execute(f'PRAGMA cache_size = -{_CACHE_KIB}')
    except sqlite3.Error:  # the file is damaged
        connection.close()
        raise
    return connection


def prepare(path: Path, tables: Tables = migrate) -> None:
    """Make sure that a file has its tables, in one transaction, and that it is in WAL mode."""
    try:
        connection = connect(path)
        try:
            connection.execute(f'PRAGMA page_size = {_PAGE_BYTES}')
            connection.execute('BEGIN IMMEDIATE')
            run_operation(connection, tables(SQLITE))
            connection.execute('COMMIT')
            connection.execute('PRAGMA journal_mode = WAL')
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise translated(error) from error
