"""The store in memory, for tests and short-lived data.

It runs the same operations on SQLite in memory, so its behavior is that of the persistent stores. The data lives as
long as an engine on it is open.
"""

from __future__ import annotations

import asyncio
import functools
import queue
import secrets
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Self, TypeVar, cast

from ._fork_guard import ForkGuard
from .engine import Operation
from .errors import StoreClosedError, StoreReadOnlyError
from .sql._migrations import migrate
from .sql.dialect import SQLITE, Dialect
from .sqlite._threads import Job, WriterThread, run_operation

T = TypeVar('T')

_LOCK: Final = threading.Lock()


class _SharedDatabase:
    """A database in memory, with one thread and one connection for all engines that opened it."""

    def __init__(self) -> None:
        self.fork_guard: ForkGuard = ForkGuard()
        self.owners: set[str] = set()
        self.jobs: queue.SimpleQueue[Job[object] | None] = queue.SimpleQueue()
        self.worker: WriterThread = WriterThread(_connect, self.jobs)


class MemoryEngine:
    """SQLite in memory, opened with `MemoryEngine.open()`.

    Engines opened with the same name share one database within this process; without a name the database is private.
    """

    _databases: ClassVar[dict[str, _SharedDatabase]] = {}

    def __init__(self, name: str, database: _SharedDatabase, *, read_only: bool = False) -> None:
        self._name = name
        self._is_read_only = read_only
        self._fork_guard = ForkGuard()
        self._database = database
        self._owner = secrets.token_hex(8)
        self._is_closed = False
        database.owners.add(self._owner)

    @classmethod
    def open(cls, name: str = '', *, read_only: bool = False) -> Self:
        """Open the database of that name, or a new one.

        Args:
            name: The name of the database; empty for a private one.
            read_only: Whether this engine refuses writes.
        """
        with _LOCK:
            database = cls._databases.get(name)
            if database is None or database.fork_guard.is_child:  # a forked child lacks its parent's threads
                database = _SharedDatabase()
            if name:
                cls._databases[name] = database
            return cls(name, database, read_only=read_only)

    @property
    def url(self) -> str:
        """The URL that opens this database again, if it has a name."""
        return f'memory:{self._name}'

    @property
    def dialect(self) -> Dialect:
        """The dialect of SQLite."""
        return SQLITE

    @property
    def owner(self) -> str:
        """A name that is unique among all engines on the same database."""
        return self._owner

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run a read-only operation."""
        return await self._put(operation)

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation, unless this engine is read-only."""
        if self._is_read_only:
            raise StoreReadOnlyError(f'The store {self.url!r} is read-only. Open it without `read_only`.')
        return await self._put(operation)

    async def write_unsynced(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `write`."""
        return await self.write(operation)

    async def write_alone(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `write`: all operations are serialized."""
        return await self.write(operation)

    async def wait_for_writes(self) -> bool:
        """Return `False`: writes are serialized, so that rows become visible in the order of their numbers."""
        return False

    async def read_with_tables(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `read`."""
        return await self.read(operation)

    async def _put(self, operation: Callable[[], Operation[T]]) -> T:
        self._fork_guard.check(self.url)
        loop = asyncio.get_running_loop()
        job = Job(operation, loop.create_future(), loop)
        with _LOCK:  # otherwise `aclose` in another thread could leave the job without a worker
            if self._is_closed:
                raise StoreClosedError(f'The store {self.url!r} was closed. Open another with `open_store`.')
            self._database.jobs.put(cast('Job[object]', job))
        return await job.future

    async def living_owners(self, owners: Sequence[str]) -> set[str]:
        """Return the owners that have an open engine."""
        return self._database.owners.intersection(owners)

    async def aclose(self) -> None:
        """Close the engine; the last one discards the data. In a forked child, only stop using it."""
        if self._fork_guard.is_child:
            self._is_closed = True
            return
        with _LOCK:
            if self._is_closed:
                return
            self._is_closed = True
            self._database.owners.remove(self._owner)
            if self._database.owners:
                return
            self._databases.pop(self._name, None)
        self._database.jobs.put(None)
        await asyncio.shield(asyncio.to_thread(self._database.worker.join))


def _connect() -> sqlite3.Connection:
    """Open a database with current tables, which are copied from another: the migrations take twenty times as long."""
    connection = _open_empty()
    with _LOCK:
        _migrated().backup(connection)
    return connection


@functools.cache
def _migrated() -> sqlite3.Connection:
    connection = _open_empty()
    run_operation(connection, migrate(SQLITE))
    return connection


def _open_empty() -> sqlite3.Connection:
    return sqlite3.connect(':memory:', isolation_level=None, check_same_thread=False)
