"""Questions about the history of every agent of a store, in SQL: a DuckDB replica that follows the store.

`await store.sql(query)` keeps a replica in memory. `Analytics` keeps it in a file, so that the next process goes on
where this one stopped; `export_parquet` writes everything for other tools. Needs the extra `duckdb`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

import anyio
from anyio import to_thread

from ._engine import Engine
from ._replica_schema import PUBLIC
from ._replica_table import Table
from .errors import QueryError, StoreClosedError, StoreFormatError, StoreUnavailableError

try:
    import duckdb
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Analytics need DuckDB, which is not installed. Install the extra: `pip install 'pydantic-deep[duckdb]'`.",
        name=error.name,
    ) from error

from ._replica import Parameters, Query, Replica
from ._replica_follow import Follower

__all__ = ('Analytics', 'Export', 'Parameters', 'SupportsAnalytics', 'Table', 'export_parquet')

_ASK_AGAIN_SECONDS: Final = 0.005
"""How often a query that was cancelled is interrupted until it ends: one that has not begun takes no notice."""


class SupportsAnalytics(Protocol):
    """A store whose tables can be read: `SqlStore`, on any engine."""

    @property
    def engine(self) -> Engine:
        """The engine."""
        ...

    async def nodes(self, digest: str) -> dict[str, bytes]:
        """Return all nodes of a tree by digest."""
        ...


class Analytics:
    """A DuckDB replica of a store, which each query first brings up to date.

    Many tasks may use it at once. Queries run in threads; a task that is cancelled interrupts its query.

    Args:
        store: The store. It must stay open, and is only read.
        replica: A file for the replica, which may become as large as the store; `None` for memory. One process at a
            time can have it open. It may be deleted whenever none has: the next one builds it again.
    """

    def __init__(self, store: SupportsAnalytics, replica: str | Path | None = None) -> None:
        self._store = store
        self._file = None if replica is None else _ReplicaFile(Path(replica))
        self._opened: _Opened | None = None
        self._following = anyio.Lock()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def sql(self, query: str, parameters: Parameters = ()) -> Table:
        """Return what a query returns, over all that was committed when it was called.

        Args:
            query: One statement that only reads, in DuckDB's SQL. It reaches the replica and nothing else: no file, no
                network, no variable, no setting.
            parameters: The values of `?`, `$1` or, as a mapping, `$name`.

        Raises:
            QueryError: The query is refused or fails, or returns more than a million rows.
            StoreUnavailableError: The store cannot be read, or the replica not be kept.
            StoreFormatError: The file of the replica is something else.
        """
        try:
            return await self._ask(query, parameters)
        except QueryError:
            if self._opened is None or await to_thread.run_sync(self._opened.replica.is_sound):
                raise
        return await self._ask(query, parameters)

    async def aclose(self) -> None:
        """Close the replica; one in memory is gone. A second call does nothing."""
        self._is_closed = True
        async with self._following:
            await to_thread.run_sync(self._close)

    async def _ask(self, query: str, parameters: Parameters) -> Table:
        async with self._following:
            replica = await self._followed()
        return await _interruptible(Query(query, parameters), replica)

    async def _followed(self) -> Replica:
        """Return the replica, up to date; one that is damaged is built again, once."""
        if self._is_closed:
            raise StoreClosedError('The analytics were closed. Make new ones for a store that is open.')
        try:
            return await self._follow()
        except duckdb.Error:
            await to_thread.run_sync(self._discard)
        try:
            return await self._follow()
        except duckdb.Error as error:
            await to_thread.run_sync(self._discard)
            raise StoreUnavailableError(
                f'The replica cannot be kept: {error}. Give `Analytics` a file with room for it; the store is not '
                'affected.'
            ) from error

    async def _follow(self) -> Replica:
        if self._opened is None:
            self._opened = await self._open()
            if not await self._opened.follower.is_same_store():
                await to_thread.run_sync(self._discard)
                self._opened = await self._open()
        await self._opened.follower.follow()
        return self._opened.replica

    async def _open(self) -> _Opened:
        if self._file is not None:
            await to_thread.run_sync(self._file.acquire)
        replica = await to_thread.run_sync(Replica, None if self._file is None else self._file.path)
        return _Opened(replica, Follower(self._store.engine, self._store.nodes, replica))

    def _discard(self) -> None:
        self._close_replica()
        if self._file is not None:
            self._file.remove()

    def _close(self) -> None:
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
    """A table as a file."""

    table: str
    """The table."""
    path: Path
    """A Parquet file."""
    row_count: int
    """How many rows it has."""


async def export_parquet(store: SupportsAnalytics, directory: str | Path) -> list[Export]:
    """Write every table to `directory`, which is made if need be, as `TABLE.parquet`.

    Each file appears whole, in place of one of that name. They are made from a replica of their own in a temporary
    directory below `directory`, the only place that its connection can reach; it takes as much room as they do, and
    some more, until the end.

    Raises:
        StoreUnavailableError: The store cannot be read, or the directory not be written.
    """
    target = Path(directory)
    try:
        place = await to_thread.run_sync(_make_place, target)
        try:
            return await _export(store, target, place)
        finally:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(partial(shutil.rmtree, place, ignore_errors=True))
    except (duckdb.Error, OSError) as error:
        if isinstance(error, StoreUnavailableError):
            raise
        raise StoreUnavailableError(f'Nothing can be exported to {str(target)!r}: {error}.') from error


async def _export(store: SupportsAnalytics, target: Path, place: Path) -> list[Export]:
    replica = await to_thread.run_sync(partial(Replica, place / 'replica.duckdb', writable=place))
    try:
        await Follower(store.engine, store.nodes, replica).follow()
        return [await to_thread.run_sync(_export_table, replica, table, target, place) for table in PUBLIC]
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(replica.close)


def _make_place(target: Path) -> Path:
    target.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix='.export-', dir=target.absolute()))


def _export_table(replica: Replica, table: str, target: Path, place: Path) -> Export:
    name = f'{table}.parquet'
    row_count = replica.copy_to(table, place / name)
    (place / name).replace(target / name)
    return Export(table=table, path=target / name, row_count=row_count)


async def _interruptible(query: Query, replica: Replica) -> Table:
    """Run a query in a thread; when the task is cancelled, interrupt it, and wait until it has ended."""
    work = asyncio.ensure_future(to_thread.run_sync(lambda: query.run(replica.cursor())))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            while not work.done():
                query.stop()
                await asyncio.wait([work], timeout=_ASK_AGAIN_SECONDS)
        work.exception()  # somebody has to have looked at it
        raise


class _ReplicaFile:
    """The file of a replica, and the lock beside it, which says that the file is ours to delete."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._lock_path = Path(f'{path}.lock')
        self._lock: int | None = None

    def acquire(self) -> None:
        """Make sure that the file is a replica, or not there, and that nobody else has it open."""
        if self._lock is not None:
            return
        try:
            if self.path.exists() and not self._lock_path.exists():
                raise StoreFormatError(
                    f'{str(self.path)!r} is there and is no replica of ours. Choose another file: a replica may be '
                    'deleted at any time.'
                )
            lock = os.open(self._lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
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

    def remove(self) -> None:
        """Delete the file, but not its lock."""
        for path in (self.path, Path(f'{self.path}.wal')):
            path.unlink(missing_ok=True)

    def release(self) -> None:
        """Let others open the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
