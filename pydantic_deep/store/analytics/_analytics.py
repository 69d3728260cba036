"""SQL queries over the history of all agents of a store, on a DuckDB replica that follows the store.

`await store.sql(query)` uses a replica in memory. `Analytics` can store it in a file, so that the next process
continues from there; `export_parquet` writes all tables for other tools. Requires the extra `duckdb`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import threading
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import anyio
from anyio import to_thread
from anyio.abc import AsyncResource

from pydantic_deep._checks import check_index, check_object
from pydantic_deep.errors import ValidationError
from pydantic_deep.store._sql_limits import SqlLimits
from pydantic_deep.store.engine import Engine
from pydantic_deep.store.errors import (
    QueryBusyError,
    QueryError,
    QueryTimeoutError,
    StoreClosedError,
    StoreFormatError,
    StoreUnavailableError,
)

from ._database import DatabaseError
from ._follower import Follower
from ._replica import Parameters, Query, Replica
from ._schema import PUBLIC
from ._semaphore import FairSemaphore
from ._table import Table

if find_spec('duckdb') is None:  # another process imports it
    raise ModuleNotFoundError(
        "Analytics need DuckDB, which is not installed. Install the extra: `pip install 'versioned-deep-agents[duckdb]'`.",
        name='duckdb',
    )

__all__ = ('Analytics', 'Export', 'Parameters', 'SupportsAnalytics', 'Table', 'export_parquet')

_LIMITS: Final = SqlLimits()


class SupportsAnalytics(Protocol):
    """A store with readable tables, such as `SqlStore` on any engine."""

    @property
    def engine(self) -> Engine:
        """The engine of the store."""
        ...

    async def nodes(self, digest: str) -> dict[str, bytes]:
        """Return all nodes of a tree, keyed by digest."""
        ...


class Analytics(AsyncResource):
    """A DuckDB replica of a store, which is brought up to date before each query.

    Many tasks, threads and event loops may use it concurrently. The replica is held by a process of its own, and each
    query runs in a fork of that process. The fork is killed on cancellation of its task, on timeout, or when this
    process ends.

    Args:
        store: The store. It must stay open, and is only read.
        replica: A file for the replica, which may become as large as the store; `None` for memory. Only one process can
            have it open at a time. It may be deleted while no process has it open, and is then rebuilt.
    """

    def __init__(self, store: SupportsAnalytics, replica: str | Path | None = None) -> None:
        if sys.platform == 'win32':
            raise StoreUnavailableError(
                'SQL over a store needs `fork`, which Windows lacks. Query the store under WSL.'
            )
        self._store = store
        self._file = None if replica is None else _ReplicaFile(Path(replica))
        self._opened: _Opened | None = None
        self._opening = threading.Lock()
        self._following = FairSemaphore()
        self._asking = FairSemaphore()
        self._is_closed = False

    async def sql(
        self,
        query: str,
        parameters: Parameters = (),
        *,
        limits: SqlLimits = _LIMITS,
        max_rows: int | None = None,
    ) -> Table:
        """Run a query over everything that was committed before the call, and return its rows.

        Args:
            query: One read-only statement in DuckDB's SQL. It has access to the replica only: no files, network,
                variables or settings.
            parameters: The values of `?`, `$1` or, as a mapping, `$name`: plain values, and lists and dicts of these.
            limits: Limits on time, memory and the number of concurrent queries.
            max_rows: Return only the first rows, and whether there are more; without it, more than a million rows raise
                an error.

        Raises:
            QueryError: The query is refused, fails, or exceeds `limits`.
            QueryTimeoutError: The query exceeded its `timeout_seconds`.
            ValidationError: `query` is not a text, `parameters` is one, or `max_rows` is negative.
            QueryBusyError: The maximum number of queries ran for the whole `wait_seconds`.
            StoreUnavailableError: The store cannot be read, or the replica cannot be stored.
            StoreFormatError: The file of the replica is not a replica.
        """
        check_object('query', query, str, 'Pass one statement of SQL.')
        if max_rows is not None:
            check_index('max_rows', max_rows)
        if isinstance(parameters, str):  # a sequence, of which each character would be bound
            raise ValidationError('parameters', f'it is a text. Pass it in a list: [{parameters!r}].')
        try:
            return await self._ask(Query(query, parameters, limits, max_rows), limits)
        except (QueryTimeoutError, QueryBusyError):
            raise
        except QueryError:
            if self._opened is None or await to_thread.run_sync(self._opened.replica.is_usable):
                raise
        return await self._ask(Query(query, parameters, limits, max_rows), limits)

    async def aclose(self) -> None:
        """Close the replica; one in memory is discarded. A second call does nothing."""
        self._is_closed = True
        async with self._following.slot(1):
            await to_thread.run_sync(self._close)

    async def _ask(self, query: Query, limits: SqlLimits) -> Table:
        async with self._following.slot(1):
            replica = await self._followed()
        try:
            async with self._asking.slot(limits.at_once, limits.wait_seconds):
                return await _interruptible(query, replica)
        except QueryError:
            self._check_open()  # closing ends the processes of queries
            raise
        except TimeoutError:
            raise QueryBusyError(
                f'{limits.at_once} queries have been running for {limits.wait_seconds:g} s, and no more may run at once. '
                'Try again later, or allow more: `limits=SqlLimits(at_once=…)` in Python, `max_sql_at_once` on a server.'
            ) from None

    async def _followed(self) -> Replica:
        """Return the replica, up to date; a damaged one is rebuilt once."""
        self._check_open()
        try:
            return await self._follow()
        except DatabaseError:
            await to_thread.run_sync(self._discard)
        try:
            return await self._follow()
        except DatabaseError as error:
            await to_thread.run_sync(self._discard)
            raise StoreUnavailableError(
                f'The replica cannot be stored: {error}. Give `Analytics` a file on a disk with enough space; the store is '
                'not affected.'
            ) from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError('The analytics were closed. Create new ones for an open store.')

    async def _follow(self) -> Replica:
        if self._opened is None:
            opened = await to_thread.run_sync(self._open)
            if not await opened.follower.is_same_store():
                await to_thread.run_sync(self._discard)
        opened = self._opened or await to_thread.run_sync(self._open)
        await opened.follower.follow()
        return opened.replica

    def _open(self) -> _Opened:
        """Open the replica once, in a thread that continues even if its task is cancelled."""
        with self._opening:
            self._check_open()
            if self._opened is None:
                replica = Replica() if self._file is None else self._file.open()
                self._opened = _Opened(replica, Follower(self._store.engine, self._store.nodes, replica))
            return self._opened

    def _discard(self) -> None:
        with self._opening:
            self._close_replica()
            if self._file is not None:
                self._file.remove()

    def _close(self) -> None:
        with self._opening:
            self._close_replica()
            if self._file is not None:
                self._file.release()

    def _close_replica(self) -> None:
        if self._opened is not None:
            self._opened.replica.close()
            self._opened = None


class _Opened(NamedTuple):
    replica: Replica
    follower: Follower


@dataclass(frozen=True, kw_only=True)
class Export:
    """A table exported to a file."""

    table: str
    """The name of the exported table."""
    path: Path
    """The path of the Parquet file."""
    row_count: int
    """The number of exported rows."""


async def export_parquet(store: SupportsAnalytics, directory: str | Path) -> list[Export]:
    """Export every table to `directory`, which is created if necessary, as `TABLE.parquet`.

    Each file appears complete, and replaces an existing one of that name. The tables come from a separate replica in a
    temporary directory below `directory`, which is all that its connection can access. It needs somewhat more space
    than the exported files, until the export ends.

    Raises:
        StoreUnavailableError: The store cannot be read, or the directory cannot be written.
    """
    target = Path(directory)
    try:
        place = await to_thread.run_sync(_make_place, target)
        try:
            return await _export(store, target, place)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(partial(shutil.rmtree, place, ignore_errors=True))
    except (DatabaseError, OSError) as error:
        if isinstance(error, StoreUnavailableError):
            raise
        raise StoreUnavailableError(f'Nothing can be exported to {str(target)!r}: {error}.') from error


async def _export(store: SupportsAnalytics, target: Path, place: Path) -> list[Export]:
    opening = asyncio.ensure_future(to_thread.run_sync(partial(Replica, place / 'replica.duckdb', writable=place)))
    try:
        replica = await asyncio.shield(opening)
        await Follower(store.engine, store.nodes, replica).follow()
        return [await to_thread.run_sync(_export_table, replica, table, target, place) for table in PUBLIC]
    finally:
        with anyio.CancelScope(shield=True):
            await asyncio.wait([opening])
            if opening.exception() is None:
                await to_thread.run_sync(opening.result().close)


def _make_place(target: Path) -> Path:
    target.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix='.export-', dir=target.absolute()))


def _export_table(replica: Replica, table: str, target: Path, place: Path) -> Export:
    name = f'{table}.parquet'
    row_count = replica.copy_to(table, place / name)
    (place / name).replace(target / name)
    return Export(table=table, path=target / name, row_count=row_count)


async def _interruptible(query: Query, replica: Replica) -> Table:
    """Run a query in a thread; on cancellation of the task, kill the query and wait until it has ended."""
    work = asyncio.ensure_future(to_thread.run_sync(query.run, replica))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        query.stop()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([work])
        work.exception()  # mark as retrieved
        raise


class _ReplicaFile:
    """The file of a replica, and the lock file beside it, which proves that the file is ours to delete."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._lock_path = Path(f'{path}.lock')
        self._lock: int | None = None

    def _acquire(self) -> int:
        """Verify that the file is a replica or missing, and lock it; return the descriptor of the lock."""
        import fcntl

        if self._lock is not None:
            return self._lock
        try:
            if self.path.exists() and not self._lock_path.exists():
                raise StoreFormatError(
                    f'{str(self.path)!r} exists and is not a replica. Choose another file: a replica may be '
                    'deleted at any time.'
                )
            lock = os.open(self._lock_path, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                raise
        except BlockingIOError as error:
            raise StoreUnavailableError(
                f'Another process, or another `Analytics`, has the replica {str(self.path)!r} open. Use another file, or '
                'none.'
            ) from error
        except OSError as error:
            raise StoreUnavailableError(
                f'The replica {str(self.path)!r} cannot be opened: {error.strerror}. Choose a directory that can be '
                'written.'
            ) from error
        self._lock = lock
        return lock

    def open(self) -> Replica:
        """Open the replica. Its process inherits the lock, and so holds it while it lives."""
        return Replica(self.path, keep=[self._acquire()])

    def remove(self) -> None:
        """Delete the file, but not its lock."""
        for path in (self.path, Path(f'{self.path}.wal')):
            path.unlink(missing_ok=True)

    def release(self) -> None:
        """Release the lock on the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
