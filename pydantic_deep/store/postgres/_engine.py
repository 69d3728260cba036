"""The store in PostgreSQL, for many machines. Requires the extra `postgres`; tested with server releases 16 and 18.

Writes run at the same time, at the isolation level `READ COMMITTED`. They wait for each other only if they lock the same
rows (the same run, branch, approval, directory, or head of a conversation), or insert the same new content. Readers are
never blocked. A process that stops in the middle of a write is disconnected after 30 seconds. A deadlock ends one of the
writes, which is retried; from the fourth attempt on, it runs alone.

Each write holds a shared lock of the schema, which it takes in the same message as `BEGIN`. With it, a reader that follows
a table by `number > last` misses no row, although a write may commit after another one that has inserted higher numbers:
`wait_for_writes` lists the holders of the lock, and waits until these have ended. Each transaction that could still add a
row below a number which was visible before is among them: it had inserted the row before, and a transaction holds its
locks until its rows are visible. No write waits for a reader, and transactions of other programs or schemas are ignored.
(A standby does not know the locks of its primary: a replica that follows one finds late rows by their count.)
Migrations, and other changes of tables, take the lock exclusively.

An operation that loses its connection is repeated, for `wait_seconds` if the server is restarted or unreachable. A write
is repeated only if it is known that it was not committed: if the answer to a `COMMIT` is lost, the server is asked for the
outcome (`_lost_commits`).

Connect to the server directly, or to a pooler in session mode (`pool_mode = session`): locks and prepared statements
belong to sessions.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from types import CodeType, GeneratorType
from typing import Final, Generic, Self, TypeVar, cast

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
from pydantic_deep.store.engine import Operation, Statement, Value, read_or_write
from pydantic_deep.store.errors import (
    StoreClosedError,
    StoreError,
    StoreFormatError,
    StoreProcessError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from pydantic_deep.store.sql._migrations import migrate
from pydantic_deep.store.sql.dialect import POSTGRES, Dialect, Tables

from ._driver import CLOSE_SECONDS, POOL_SIZE, Connection, Pool, connect, create_pool
from ._errors import LOST, RETRYABLE, error_text, translate_error, unknown_commit
from ._lost_commits import LostCommit, is_applied, transaction_id
from ._owner_session import OwnerSession
from ._reconnection import Reconnection, Wait
from ._transactions import (
    BEGIN_ALONE,
    BEGIN_READ,
    BEGIN_READ_WITH_TABLES,
    BEGIN_WRITE,
    MultipleStatementsError,
    OperationError,
    run_only_statement,
    run_operation,
    transaction,
)
from ._url import without_password

T = TypeVar('T')

_MAX_CONFLICTS: Final = 10
"""Maximum number of attempts for a transaction with conflicts, which are deadlocks. Of the transactions in a deadlock, all
but one continue.
"""

_MAX_SHARED_ATTEMPTS: Final = 3
"""Number of attempts of a write beside other writes. Later ones run alone, because it could conflict each time."""

_MAX_DELAY_MS: Final = 20
"""Maximum random delay before the second attempt; that of later ones grows with their number."""

_MAX_WRITES: Final = POOL_SIZE - 2
"""Maximum number of concurrent writes, so that writes that wait for locks leave connections to readers."""

_MAX_PAUSE_SECONDS: Final = 0.05
"""Maximum time between two looks at the writes in progress."""

_RETURN_SECONDS: Final = 3.0
"""How long owners have to take their locks again after a restart of the server, or after our own connection was lost. Each
tries to connect at least twice a second.
"""

_WRITES: Final = (
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted"
    " AND classid = x'70646565'::integer::oid AND objid = (hashtext(current_schema())::bigint & 4294967295)::oid"
    ' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())'
)
"""The transactions that hold the lock. A lock with two keys is listed with both."""


class _Write(Generic[T]):
    """The state of one write over its repetitions."""

    def __init__(self, begin: str) -> None:
        self.begin = begin
        self.conflicts = 0
        self.lost: LostCommit[T] | None = None


class PostgresEngine:
    """PostgreSQL, opened with `await PostgresEngine.open(url)` in the event loop that will use it."""

    def __init__(
        self, pool: Pool, connect: Callable[[], Awaitable[Connection]], url: str, *, read_only: bool = False
    ) -> None:
        self._pool = pool
        self._reconnection = Reconnection(self._ping if read_only else self._hold, url)
        self._session = OwnerSession(connect, self._reconnection.begin)
        self._is_read_only = read_only
        self._fork_guard = ForkGuard()
        self._loop = asyncio.get_running_loop()
        self._url = url
        self._hold_lock = asyncio.Lock()
        self._write_slots = asyncio.Semaphore(_MAX_WRITES)
        self._multi_statement: set[CodeType] = set()
        self._tasks: set[asyncio.Task[object]] = set()
        self._is_closed = False

    @classmethod
    async def open(
        cls, url: str, tables: Tables = migrate, *, read_only: bool = False, wait_seconds: float = 30
    ) -> Self:
        """Connect, and bring the tables up to date; if several processes do so at once, one of them migrates.

        No lock is taken if the tables are up to date.

        Args:
            url: `postgresql://role:password@host:port/database?…`. Missing parts come from the usual variables, such as
                `PGPASSWORD`; `?search_path=…` names a schema for the tables.
            tables: Brings the tables up to date; those of a store by default.
            read_only: Whether to refuse writes; the role then needs only `SELECT`.
            wait_seconds: How long operations wait for a server that is restarted or unreachable. Opening does not wait.

        Raises:
            StoreFormatError: The database has other tables, those of a newer release, or, with `read_only`, of an older
                one.
            StoreUnavailableError: The database cannot be reached or written.
            ValueError: The URL is malformed.
        """
        shown = without_password(url)

        pool = await create_pool(url, read_only=read_only)
        engine = cls(pool, lambda: connect(url), shown, read_only=read_only)
        try:
            await read_or_write(engine, lambda: tables(POSTGRES))
            if not read_only:
                await engine._run(engine._hold)
        except StoreReadOnlyError:
            await engine.aclose()
            raise StoreFormatError(
                f'The database {shown!r} is empty or has the tables of an older release. Open it once without '
                '`read_only` to bring it up to date.'
            ) from None
        except BaseException:
            await engine.aclose()
            raise
        engine._reconnection.wait_seconds = wait_seconds
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
        return await self._run(lambda: self._read(operation))

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation, and return once it is durable.

        Raises:
            UnknownCommitError: The connection was lost while the server committed, and it cannot tell the outcome.
        """
        return await self._run_write(operation, BEGIN_WRITE)

    async def write_unsynced(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation of one statement, which is its own transaction."""
        self._check_writable()
        return await self._run(lambda: self._write_unsynced(operation))

    async def write_alone(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation like `write`, while no other write runs."""
        return await self._run_write(operation, BEGIN_ALONE)

    async def wait_for_writes(self) -> bool:
        """Wait until the writes in progress have ended, and return `True`."""
        pause = 0.001
        pending = await self.read(_writes_in_progress)
        while pending:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)
            pending &= await self.read(_writes_in_progress)
        return True

    async def read_with_tables(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation on one consistent snapshot; its temporary tables end with it."""
        return await self._run(lambda: self._read_with_tables(operation))

    async def living_owners(self, owners: Sequence[str]) -> set[str]:
        """Return the owners that hold their lock. After a restart of the server, wait until they had time to take it."""
        end = self._loop.time() + _RETURN_SECONDS
        while True:
            living, server_seconds = await self._run(lambda: self._living(owners))
            now = self._loop.time()
            seconds = min(server_seconds, now - self._reconnection.connected_at)
            if living.issuperset(owners) or seconds >= _RETURN_SECONDS or now >= end:
                return living
            await asyncio.sleep(_MAX_PAUSE_SECONDS)

    async def aclose(self) -> None:
        """Complete running operations, close the connections and release the lock; in a forked child, only stop using
        them.
        """
        self._is_closed = True
        if self._fork_guard.is_child:
            return
        self._reconnection.close()
        with anyio.CancelScope(shield=True):
            while self._tasks:
                await asyncio.wait(self._tasks)
            with suppress(*LOST):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._pool.close()  # terminates them on timeout
            with suppress(*LOST):
                await self._session.aclose()

    async def _run_write(self, operation: Callable[[], Operation[T]], begin: str) -> T:
        self._check_writable()
        write = _Write[T](begin)
        try:
            return await self._run(lambda: self._write(write, operation))
        except (StoreUnavailableError, StoreClosedError) as error:
            if write.lost is None:
                raise
            raise unknown_commit(write.lost.error, self._url, str(error)) from error

    async def _run(self, once: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run it, again after lost connections. A cancellation of the caller ends the wait for the server at once."""
        wait = Wait(self._reconnection)
        while True:
            self._check_usable()
            await wait.until_connected()
            self._check_usable()
            try:
                return await self._run_shielded(once)
            except OperationError as raised:
                raise raised.error from None
            except (StoreError, ValueError):
                raise
            except LOST as error:
                if not await wait.allows_repetition():
                    raise translate_error(error, self._url, self._reconnection.wait_seconds) from error

    def _check_writable(self) -> None:
        if self._is_read_only:
            raise StoreReadOnlyError(f'The store {self._url!r} is read-only. Open it without `read_only`.')

    def _check_usable(self) -> None:
        self._fork_guard.check(self._url)
        if asyncio.get_running_loop() is not self._loop:
            raise StoreProcessError(
                f'The store {self._url!r} was opened in another event loop, to which its connections belong. Open it '
                'again in this one with `open_store`.'
            )
        if self._is_closed:
            raise StoreClosedError(f'The store {self._url!r} was closed. Open it again with `open_store`.')

    async def _run_shielded(self, once: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run it in a task of its own, which is protected from cancellation of the caller."""
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
        """Run it, again after conflicts: a transaction that did not commit had no effect."""
        conflicts = 0
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
            except LOST:
                await self._lose_connections()
                raise
            except asyncpg.DataError as error:
                raise ValueError(f'PostgreSQL cannot store a value: {error_text(error)}.') from error
            except asyncpg.PostgresError as error:
                raise translate_error(error, self._url) from error

    async def _lose_connections(self) -> None:
        """Replace all connections before their next use: the cause that ended one has probably ended the others."""
        self._session.doubt()
        await self._pool.expire_connections()
        self._reconnection.begin()

    async def _ping(self) -> None:
        async with self._connection():
            pass

    async def _hold(self) -> None:
        async with self._hold_lock:
            await self._session.hold()

    async def _read(self, operation: Callable[[], Operation[T]]) -> T:
        """Run it without a transaction, if operations of its kind have a single statement; otherwise in one."""
        async with self._connection() as connection:
            generator = operation()
            code = cast('GeneratorType[object, object, object]', generator).gi_code
            if code not in self._multi_statement:
                try:
                    return await run_only_statement(connection, generator)
                except MultipleStatementsError:
                    self._multi_statement.add(code)
                    generator = operation()
            async with transaction(connection, BEGIN_READ):
                result = await run_operation(connection, generator)
                await connection.execute('COMMIT')
                return result

    async def _read_with_tables(self, operation: Callable[[], Operation[T]]) -> T:
        async with self._connection() as connection, transaction(connection, BEGIN_READ_WITH_TABLES):
            result = await run_operation(connection, operation())
            await connection.execute('ROLLBACK')
            return result

    async def _write(self, write: _Write[T], operation: Callable[[], Operation[T]]) -> T:
        async with self._write_slots:
            await self._hold()
            async with self._connection() as connection:
                if write.lost is not None:
                    if await self._is_applied(connection, write.lost):
                        return write.lost.result
                    write.lost = None
                try:
                    return await self._write_once(write, operation, connection)
                except RETRYABLE:
                    write.conflicts += 1
                    raise

    async def _write_unsynced(self, operation: Callable[[], Operation[T]]) -> T:
        async with self._write_slots, self._connection() as connection:
            return await run_only_statement(connection, operation())

    async def _write_once(self, write: _Write[T], operation: Callable[[], Operation[T]], connection: Connection) -> T:
        begin = write.begin if write.conflicts < _MAX_SHARED_ATTEMPTS else BEGIN_ALONE
        async with transaction(connection, begin):
            result = await run_operation(connection, operation())
            id = transaction_id(connection)
            try:
                await connection.execute('COMMIT')
            except LOST as error:
                write.lost = LostCommit(id=id, result=result, error=error)
                raise
            return result

    async def _is_applied(self, connection: Connection, lost: LostCommit[T]) -> bool:
        applied = await is_applied(connection, lost.id)
        if applied is None:
            raise StoreUnavailableError('The server cannot tell the outcome of its transaction.')
        return applied

    async def _living(self, owners: Sequence[str]) -> tuple[set[str], float]:
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
