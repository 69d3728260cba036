"""`PostgresDispatcher`: delivers runs by a queue in PostgreSQL. Importing this module requires the extra `queue`.

The queue is that of `pgqueuer`: its tables, migrations and statements. The loop of a worker is ours: that of the library
deletes the jobs of a worker that is stopped, and ends with its connection.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Self, TypeVar, cast
from urllib.parse import urlsplit
from uuid import uuid4

import anyio

try:
    import asyncpg
    from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver, AsyncpgPoolDriver
    from pgqueuer.adapters.persistence.qb import (
        QueryBuilderEnvironment,
        QueryQueueBuilder,
        QuerySchedulerBuilder,
    )
    from pgqueuer.adapters.persistence.queries import Queries
    from pgqueuer.domain.models import AnyEvent, Job, TableChangedEvent
    from pgqueuer.domain.settings import DBSettings, Durability
    from pgqueuer.domain.types import QueueEntrypoint, QueueManagerId
    from pgqueuer.ports.driver import Driver
    from pgqueuer.ports.repository import EntrypointExecutionParameter
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f'A queue in PostgreSQL needs `{_error.name}`, which is not installed. Install the extra: '
        "`pip install 'versioned-deep-agents[queue]'`.",
        name=_error.name,
    ) from _error

from pydantic_deep._logs.outage_log import OutageLog

from ._protocol import DispatcherHealth, ExecuteRun
from .errors import DispatcherUnavailableError

__all__ = ('PostgresDispatcher',)

T = TypeVar('T')

_LOGGER = logging.getLogger('pydantic_deep')

_POOL: Final = 2
"""Maximum number of connections, besides one for the notifications of each worker."""

_TIMEOUT_SECONDS: Final = 10.0
"""Timeout of a connection attempt and of a statement."""

_POLL_SECONDS: Final = 10.0
"""Interval at which a worker looks for runs without a notification: those of crashed workers, and repeated ones."""

_RECONNECT_SECONDS: Final = 1.0

_MAX_DELAY: Final = timedelta(minutes=5)
"""Maximum delay before a run is delivered again whose `execute` raised. The first delay is a second, and they double."""

_LOG_INTERVAL: Final = '1 day'
"""How long the library's log of deliveries, from which it computes its statistics, is retained."""

_PRUNE_SECONDS: Final = 3600.0

_SETTINGS: Final = {'application_name': 'pydantic-deep-queue'}
_DOWN: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
_INSTALL_LOCK: Final = "SELECT pg_advisory_lock(hashtextextended('pydantic-deep-queue', 0))"


class PostgresDispatcher:
    """A `Dispatcher` on PostgreSQL. Open it with `await PostgresDispatcher.open(url)` or `open_dispatcher(url)`.

    It may use the database of the store: its tables are in a schema of their own, `pgqueuer_` and the name of the
    schema of the URL. It has up to two connections, and one for each worker. The command of pgqueuer shows the queue,
    for example `pgq --schema pgqueuer_public backlog`.

    Runs with a higher priority are delivered first. A worker that crashed is detected by its missing heartbeat.
    """

    def __init__(self, pool: Any, url: str, settings: DBSettings, heartbeat_seconds: float) -> None:
        self._pool = pool
        self._url = url
        self._name = _name(url)
        self._settings = settings
        self._heartbeat = timedelta(seconds=heartbeat_seconds)
        self._queries = _queries(AsyncpgPoolDriver(pool), settings)

    @classmethod
    async def open(cls, url: str, *, heartbeat_seconds: float = 30) -> Self:
        """Connect, and create or upgrade the tables of the queue.

        Args:
            url: `postgresql://…`, as for `open_store`.
            heartbeat_seconds: The time without a heartbeat after which the runs of a worker are delivered again. It
                must be the same for all workers.

        Raises:
            DispatcherUnavailableError: The database cannot be reached or written.
        """
        name = _name(url)
        try:
            connection = await _connect(url)
            try:
                schema = str(await connection.fetchval('SELECT current_schema()'))
                settings = _settings(_queue_schema(schema))
                queries = _queries(AsyncpgDriver(connection), settings)
                await connection.execute(_INSTALL_LOCK)  # released with the connection
                if await queries.schema_is_installed():
                    await queries.upgrade()
                else:
                    await queries.install()
            finally:
                await connection.close(timeout=_TIMEOUT_SECONDS)
        except _DOWN as error:
            raise DispatcherUnavailableError(name, _sentence(error)) from error
        pool = await cast('Any', asyncpg).create_pool(
            url,
            min_size=0,
            max_size=_POOL,
            timeout=_TIMEOUT_SECONDS,
            command_timeout=_TIMEOUT_SECONDS,
            server_settings=_SETTINGS,
        )
        return cls(pool, url, settings, heartbeat_seconds)

    async def submit(self, run_id: str, *, agent_name: str, conversation_id: str, priority: int = 0) -> None:
        """Queue a run. Its conversation is not used: the queue of the store decides when the run can begin."""
        await self._call(
            lambda: self._queries.enqueue(agent_name, run_id.encode(), priority, dedupe_key=run_id, on_conflict='skip')
        )

    async def cancel(self, run_id: str, *, conversation_id: str) -> None:
        """Remove a run from the queue, unless a worker has it."""
        queue = self._settings.qualified.queue_table
        statement = f"DELETE FROM {queue} WHERE dedupe_key = $1 AND status = 'queued'"  # noqa: S608 - no user input
        await self._call(lambda: self._queries.driver.execute(statement, run_id))

    async def work(self, execute: ExecuteRun, *, agent_names: Collection[str], concurrency: int) -> None:
        """Execute the runs of these agents until the task is cancelled, and then queue unfinished ones again."""
        await _Worker(self._queries, self._listen, self._heartbeat, execute, agent_names, concurrency).work()

    async def health(self) -> DispatcherHealth:
        """Return whether the database answers."""
        try:
            await self._call(lambda: self._pool.fetchval('SELECT 1'))
        except DispatcherUnavailableError as error:
            return DispatcherHealth(is_up=False, detail=str(error))
        return DispatcherHealth(is_up=True, detail=f'{self._name} is up.')

    async def aclose(self) -> None:
        """Close the connections."""
        with anyio.move_on_after(_TIMEOUT_SECONDS, shield=True):
            await self._pool.close()

    async def _call(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Run an operation, a second time if the connection was lost, as idle ones are by a restart of the server."""
        try:
            try:
                return await operation()
            except (OSError, asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError):
                await self._pool.expire_connections()
                return await operation()
        except _DOWN as error:
            raise DispatcherUnavailableError(self._name, _sentence(error)) from error

    @asynccontextmanager
    async def _listen(self, on_insert: Callable[[], None]) -> AsyncGenerator[Any]:
        """Open a connection that calls `on_insert` when a run is queued, and when it is lost."""

        def notify(connection: object, process_id: int, channel: str, payload: str) -> None:
            event = AnyEvent.model_validate_json(payload).root
            if isinstance(event, TableChangedEvent) and event.operation == 'insert':
                on_insert()

        def wake(connection: object) -> None:
            on_insert()

        connection = await _connect(self._url)
        try:
            connection.add_termination_listener(wake)
            await connection.add_listener(self._settings.channel, notify)
            yield connection
        finally:
            connection.terminate()


class _Worker:
    """A worker, which holds at most `concurrency` runs of the queue at any time."""

    def __init__(
        self,
        queries: Queries,
        listen: Callable[[Callable[[], None]], Any],
        heartbeat: timedelta,
        execute: ExecuteRun,
        agent_names: Collection[str],
        concurrency: int,
    ) -> None:
        self._queries = queries
        self._listen = listen
        self._heartbeat = heartbeat
        self._execute = execute
        unlimited = EntrypointExecutionParameter(concurrency_limit=0)
        self._entrypoints = {QueueEntrypoint(name): unlimited for name in agent_names}
        self._concurrency = concurrency
        self._id = QueueManagerId(uuid4())
        self._running: set[Any] = set()
        self._wake = anyio.Event()

    async def work(self) -> None:
        outage = OutageLog('The worker', 'queue')
        async with anyio.create_task_group() as group:
            group.start_soon(self._maintain)
            while True:
                try:
                    async with self._listen(lambda: self._wake.set()) as connection:
                        outage.note_success()
                        while not connection.is_closed():
                            self._wake = anyio.Event()
                            while (job := await self._next()) is not None:
                                self._running.add(job.id)
                                group.start_soon(self._run, job)
                            with anyio.move_on_after(min(_POLL_SECONDS, self._heartbeat.total_seconds() / 2)):
                                await self._wake.wait()
                except _DOWN as error:
                    outage.note_failure(_sentence(error))
                    await anyio.sleep(_RECONNECT_SECONDS)

    async def _next(self) -> Job | None:
        """Take the next run, if another one may run; those that run here are not taken again."""
        while len(self._running) < self._concurrency:
            jobs = await self._queries.dequeue(1, self._entrypoints, self._id, None, self._heartbeat)
            if not jobs or jobs[0].id not in self._running:
                return jobs[0] if jobs else None
        return None

    async def _run(self, job: Job) -> None:
        run_id = (job.payload or b'').decode()
        again: timedelta | None = timedelta(0)  # if the worker is cancelled
        try:
            await self._execute(run_id)
            again = None
        except Exception:  # outermost boundary: a run ends neither the worker nor other runs
            again = min(timedelta(seconds=2 ** min(job.attempts, 20)), _MAX_DELAY)
            _LOGGER.exception('The run %s could not be executed, and is delivered again in %s', run_id, again)
        finally:
            with anyio.CancelScope(shield=True):
                await self._settle(job, again)
            self._running.discard(job.id)
            self._wake.set()

    async def _settle(self, job: Job, again: timedelta | None) -> None:
        """Remove the run from the queue, or queue it again."""
        try:
            if again is None:
                await self._queries.log_jobs([(job, 'successful', None)])
            else:
                await self._queries.retry_job(job, again, None)
        except _DOWN as error:
            _LOGGER.warning('The run is delivered once more when its heartbeat expires: %s', _sentence(error))

    async def _maintain(self) -> None:
        """Send heartbeats, and delete old rows of the log."""
        log = self._queries.qbe.settings.qualified.queue_table_log
        prune = f"DELETE FROM {log} WHERE created < now() - interval '{_LOG_INTERVAL}'"  # noqa: S608 - constants
        next_prune = anyio.current_time()
        while True:
            try:
                if self._running:
                    await self._queries.update_heartbeat(list(self._running))
                if anyio.current_time() >= next_prune:
                    await self._queries.driver.execute(prune)
                    next_prune = anyio.current_time() + _PRUNE_SECONDS
            except _DOWN as error:
                _LOGGER.warning('The worker cannot report its runs to its queue: %s', _sentence(error))
            await anyio.sleep(self._heartbeat.total_seconds() / 3)


async def _connect(url: str) -> Any:
    return await cast('Any', asyncpg).connect(
        url, timeout=_TIMEOUT_SECONDS, command_timeout=_TIMEOUT_SECONDS, server_settings=_SETTINGS
    )


def _settings(schema: str) -> DBSettings:
    """Return the library's settings, which are not read from the environment, unlike by their constructor."""
    return DBSettings.model_construct(db_schema=schema, channel=schema, durability=Durability.balanced)


def _queries(driver: Driver, settings: DBSettings) -> Queries:
    return Queries(
        driver,
        qbe=QueryBuilderEnvironment(settings),
        qbq=QueryQueueBuilder(settings),
        qbs=QuerySchedulerBuilder(settings),
    )


def _name(url: str) -> str:
    """Return the name of the queue for people, without role and password."""
    parts = urlsplit(url)
    if '@' in f'{parts.path}{parts.query}{parts.fragment}':
        raise ValueError('Percent-encode `@`, `/`, `?` and `#` in the password of the PostgreSQL URL.')
    return f'The queue in PostgreSQL at {parts.netloc.rpartition("@")[2]}{parts.path}'


def _queue_schema(schema: str) -> str:
    """Return the schema of the queue for the schema of a store. It is a plain identifier, which pgqueuer does not quote.

    Other names, and those that would exceed the 63 characters of PostgreSQL, get a digest, so that two schemas never share
    a queue.
    """
    if re.fullmatch('[a-z0-9_]{1,54}', schema):
        return f'pgqueuer_{schema}'
    plain = re.sub('[^a-z0-9_]', '_', schema.lower())
    return f'pgqueuer_{plain[:37]}_{hashlib.sha256(schema.encode()).hexdigest()[:16]}'


def _sentence(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text if text.endswith('.') else f'{text}.'
