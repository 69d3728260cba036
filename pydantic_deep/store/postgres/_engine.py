"""The store in PostgreSQL, for many machines. Requires the extra `postgres`; tested with server releases 16 and 18.

Writes run at the same time, at the isolation level `READ COMMITTED`. They wait for each other only if they lock the same
rows (the same run, branch, approval, directory, or head of a conversation), or insert the same new content. Readers are
never blocked. A process that stops in the middle of a write is disconnected after 30 seconds. A deadlock ends one of the
writes, which is retried.

Each write holds a shared lock of the schema, which it takes in the same message as `BEGIN`. With it, a reader that follows
a table by `number > last` misses no row, although a write may commit after another one that has inserted higher numbers:
`wait_for_writes` lists the holders of the lock, and waits until these have ended. Each transaction that could still add a
row below a number which was visible before is among them: it had inserted the row before, and a transaction holds its
locks until its rows are visible. No write waits for a reader, and transactions of other programs or schemas are ignored.
(A standby does not know the locks of its primary: a replica that follows one finds late rows by their count.)
Migrations, and other changes of tables, take the lock exclusively.

Connect to the server directly, or to a pooler in session mode (`pool_mode = session`): locks and prepared statements
belong to sessions.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from types import CodeType, GeneratorType
from typing import Final, Self, TypeVar, cast

import anyio

try:
    import asyncpg
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'A store in PostgreSQL needs `asyncpg`, which is not installed. Install the extra: '
        "`pip install 'versioned-deep-agents[postgres]'`.",
        name=error.name,
    ) from error

from pydantic_deep.store._fork_guard import ForkGuard
from pydantic_deep.store.engine import Operation, Row, Statement, Value, read_or_write
from pydantic_deep.store.errors import (
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreProcessError,
    StoreReadOnlyError,
)
from pydantic_deep.store.sql._migrations import migrate
from pydantic_deep.store.sql.dialect import POSTGRES, Dialect, Tables

from ._driver import CLOSE_SECONDS, POOL_SIZE, Connection, Pool, connect, create_pool
from ._errors import LOST, RETRYABLE, error_text, translate_error, unknown_commit
from ._owner_session import OwnerSession
from ._url import without_password

T = TypeVar('T')

_MAX_CONFLICTS: Final = 10
"""Maximum number of attempts for a transaction with conflicts, which are deadlocks. Of the transactions in a deadlock, all
but one continue.
"""

_MAX_DELAY_MS: Final = 20
"""Maximum random delay before the second attempt; that of later ones grows with their number."""

_MAX_WRITES: Final = POOL_SIZE - 2
"""Maximum number of concurrent writes, so that writes that wait for locks leave connections to readers."""

_MAX_PAUSE_SECONDS: Final = 0.05
"""Maximum time between two looks at the writes in progress."""

_BEGIN_READ: Final = 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY'
_BEGIN_READ_WITH_TABLES: Final = 'BEGIN ISOLATION LEVEL REPEATABLE READ'
_BEGIN_WRITE: Final = (
    'BEGIN ISOLATION LEVEL READ COMMITTED;'
    "SELECT pg_advisory_xact_lock_shared(x'70646565'::integer, hashtext(current_schema()))"
)
"""The key of the lock is `pdee` and the schema."""

_BEGIN_ALONE: Final = _BEGIN_WRITE.replace('_shared', '')
_WRITES: Final = (
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted"
    " AND classid = x'70646565'::integer::oid AND objid = (hashtext(current_schema())::bigint & 4294967295)::oid"
    ' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())'
)
"""The transactions that hold the lock. A lock with two keys is listed with both."""


class PostgresEngine:
    """PostgreSQL, opened with `await PostgresEngine.open(url)` in the event loop that will use it."""

    def __init__(self, pool: Pool, session: OwnerSession, url: str, *, read_only: bool = False) -> None:
        self._pool = pool
        self._is_read_only = read_only
        self._fork_guard = ForkGuard()
        self._loop = asyncio.get_running_loop()
        self._session = session
        self._url = url
        self._hold_lock = asyncio.Lock()
        self._write_slots = asyncio.Semaphore(_MAX_WRITES)
        self._multi_statement: set[CodeType] = set()
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_closed = False

    @classmethod
    async def open(cls, url: str, tables: Tables = migrate, *, read_only: bool = False) -> Self:
        """Connect, and bring the tables up to date; if several processes do so at once, one of them migrates.

        No lock is taken if the tables are up to date.

        Args:
            url: `postgresql://role:password@host:port/database?…`. Missing parts come from the usual variables, such as
                `PGPASSWORD`; `?search_path=…` names a schema for the tables.
            tables: Brings the tables up to date; those of a store by default.
            read_only: Whether to refuse writes; the role then needs only `SELECT`.

        Raises:
            StoreFormatError: The database has other tables, those of a newer release, or, with `read_only`, of an older
                one.
            StoreUnavailableError: The database cannot be reached or written.
            ValueError: The URL is malformed.
        """
        shown = without_password(url)

        pool = await create_pool(url, read_only=read_only)
        engine = cls(pool, OwnerSession(lambda: connect(url)), shown, read_only=read_only)
        try:
            await read_or_write(engine, lambda: tables(POSTGRES))
            if not read_only:
                await engine._run_shielded(engine._session.hold)
        except StoreReadOnlyError:
            await engine.aclose()
            raise StoreFormatError(
                f'The database {shown!r} is empty or has the tables of an older release. Open it once without '
                '`read_only` to bring it up to date.'
            ) from None
        except BaseException:
            await engine.aclose()
            raise
        return engine

    @property
    def url(self) -> str:
        """The URL that opens this database again, without the password."""
        return self._url

    @property
    def dialect(self) -> Dialect:
        """The dialect of PostgreSQL."""
        return POSTGRES

    @property
    def owner(self) -> str:
        """A name that is unique among all open stores on the same database."""
        return self._session.owner

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run a read-only operation on one consistent snapshot."""
        return await self._run_shielded(lambda: self._read(operation))

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation, and return once it is durable.

        Raises:
            UnknownCommitError: The connection was lost while the server committed.
        """
        return await self._run_write(operation, _BEGIN_WRITE)

    async def write_alone(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `write`, while no other write runs."""
        return await self._run_write(operation, _BEGIN_ALONE)

    async def wait_for_writes(self) -> None:
        """Wait until the writes in progress have ended."""
        pause = 0.001
        pending = await self.read(_writes_in_progress)
        while pending:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)
            pending &= await self.read(_writes_in_progress)

    async def read_with_tables(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation on one consistent snapshot; its temporary tables end with it."""
        return await self._run_shielded(lambda: self._read_with_tables(operation))

    async def living_owners(self, owners: Sequence[str]) -> set[str]:
        """Return the owners that hold their lock."""
        return await self._run_shielded(lambda: self._living(owners))

    async def aclose(self) -> None:
        """Complete running operations, close the connections and release the lock; in a forked child, only stop using
        them.
        """
        self._is_closed = True
        if self._fork_guard.is_child:
            return
        with anyio.CancelScope(shield=True), suppress(*LOST):
            while self._tasks:
                await asyncio.wait(self._tasks)
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._pool.close()  # terminates them on timeout
            await self._session.aclose()

    async def _run_write(self, operation: Callable[[], Operation[T]], begin: str) -> T:
        if self._is_read_only:
            raise StoreReadOnlyError(f'The store {self._url!r} is read-only. Open it without `read_only`.')
        return await self._run_shielded(lambda: self._write(operation, begin))

    async def _run_shielded(self, once: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run it in a task of its own, which is protected from cancellation of the caller."""
        self._fork_guard.check(self._url)
        if asyncio.get_running_loop() is not self._loop:
            raise StoreProcessError(
                f'The store {self._url!r} was opened in another event loop, to which its connections belong. Open it '
                'again in this one with `open_store`.'
            )
        if self._is_closed:
            raise StoreClosedError(f'The store {self._url!r} was closed. Open it again with `open_store`.')
        task = asyncio.create_task(self._with_retries(once))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        await asyncio.wait([task])
        return task.result()

    def _forget(self, task: asyncio.Task[T]) -> None:
        self._tasks.discard(task)
        with suppress(asyncio.CancelledError):
            task.exception()  # mark as retrieved, even if no task awaits the result any more

    async def _with_retries(self, once: Callable[[], Coroutine[object, object, T]]) -> T:
        """Retry after a conflict or a lost connection: a transaction that did not commit had no effect."""
        losses = conflicts = 0
        while True:
            try:
                return await once()
            except (StoreError, ValueError):
                raise
            except RETRYABLE as error:
                conflicts += 1
                if conflicts == _MAX_CONFLICTS:
                    raise translate_error(error, self._url) from error
                await asyncio.sleep(secrets.randbelow(_MAX_DELAY_MS * conflicts) / 1000)
            except LOST as error:
                losses += 1
                await self._expire_connections()
                if losses > 1:
                    raise translate_error(error, self._url) from error
            except asyncpg.DataError as error:
                raise ValueError(f'PostgreSQL cannot store a value: {error_text(error)}.') from error
            except asyncpg.PostgresError as error:
                raise translate_error(error, self._url) from error

    async def _expire_connections(self) -> None:
        """Replace all connections before their next use: the cause that ended one has probably ended the others."""
        self._session.drop_connection()
        await self._pool.expire_connections()

    async def _read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run it without a transaction, if operations of its kind have a single statement; otherwise in one."""
        async with self._connection() as connection:
            generator = operation()
            code = cast('GeneratorType[object, object, object]', generator).gi_code
            if code not in self._multi_statement:
                try:
                    return await _only_statement(connection, generator)
                except _MultipleStatements:
                    self._multi_statement.add(code)
                    generator = operation()
            async with _transaction(connection, _BEGIN_READ):
                result = await _run_operation(connection, generator)
                await connection.execute('COMMIT')
                return result

    async def _read_with_tables(self, operation: Callable[[], Operation[T]]) -> T:
        async with self._connection() as connection, _transaction(connection, _BEGIN_READ_WITH_TABLES):
            result = await _run_operation(connection, operation())
            await connection.execute('ROLLBACK')
            return result

    async def _write(self, operation: Callable[[], Operation[T]], begin: str) -> T:
        async with self._write_slots:
            async with self._hold_lock:
                await self._session.hold()
            async with self._connection() as connection, _transaction(connection, begin):
                result = await _run_operation(connection, operation())
                await self._commit(connection)
                return result

    async def _commit(self, connection: Connection) -> None:
        try:
            await connection.execute('COMMIT')
        except LOST as error:
            await self._expire_connections()
            raise unknown_commit(error, self._url) from error

    async def _living(self, owners: Sequence[str]) -> set[str]:
        async with self._connection() as connection:
            return await self._session.living(owners, connection)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[Connection]:
        """Acquire a connection; an error when it is released does not affect the work done on it."""
        connection = await self._pool.acquire()
        try:
            yield connection
        finally:
            with suppress(*LOST):
                await self._pool.release(connection)


def _writes_in_progress() -> Operation[set[Value]]:
    return {row[0] for row in (yield Statement(_WRITES))}


class _MultipleStatements(Exception):
    """An operation has more than one statement."""


async def _only_statement(connection: Connection, operation: Operation[T]) -> T:
    try:
        rows = await _run_statement(connection, next(operation))
        operation.send(rows)
    except StopIteration as stop:
        return stop.value
    finally:
        operation.close()
    raise _MultipleStatements


async def _run_operation(connection: Connection, operation: Operation[T]) -> T:
    try:
        statement = next(operation)
        while True:
            statement = operation.send(await _run_statement(connection, statement))
    except StopIteration as stop:
        return stop.value
    finally:
        operation.close()


async def _run_statement(connection: Connection, statement: Statement) -> list[Row]:
    sql = _numbered(statement.sql)
    if statement.many is not None:
        await connection.executemany(sql, statement.many)
        return []
    return [tuple(row) for row in await connection.fetch(sql, *statement.parameters)]


@lru_cache(maxsize=2048)
def _numbered(sql: str) -> str:
    """Return a statement in PostgreSQL's notation: with its parameters, and with its lock of rows."""
    return re.sub(r'/\* (FOR [A-Z a-z]+) \*/', r'\1', re.sub(r'\?(?=[0-9])', '$', sql))


@asynccontextmanager
async def _transaction(connection: Connection, begin: str) -> AsyncGenerator[None]:
    """Begin a transaction, and roll it back on any error; committing is up to the caller."""
    try:
        await connection.execute(begin)
        yield
    except BaseException:
        await _roll_back(connection)
        raise


async def _roll_back(connection: Connection) -> None:
    """Roll back, or terminate the connection: the original error takes precedence."""
    try:
        await connection.execute('ROLLBACK')
    except LOST:
        with suppress(asyncpg.InterfaceError):  # it was released when it was closed
            connection.terminate()
