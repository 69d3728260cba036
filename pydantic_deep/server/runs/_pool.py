"""`RunPool`: the runs of this process, as tasks that belong to the server and not to a request.

Defined elsewhere: access to runs (`access`), and runs of other processes (`_stored_run_events`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup
from pydantic_ai import CancellationToken

from pydantic_deep._logs.outage_log import OutageLog
from pydantic_deep._session_id import session_scope
from pydantic_deep.dispatch import Dispatcher, DispatcherUnavailableError, TurnEvent, emit_turn, submit
from pydantic_deep.server._metrics import ServerMetrics
from pydantic_deep.server._settings import ServerSettings
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.store import (
    QueuedRunRecord,
    QueueLimitError,
    RunQueue,
    RunRecord,
    SqlStore,
    StoreUnavailableError,
    VersionBusyError,
    VersionNotFoundError,
    new_id,
    now,
)
from pydantic_deep.streaming import RunEvents
from pydantic_deep.versions import AgentVersion, TurnOptions, TurnStream

from ._log_cache import LogCache
from ._mirrors import RunMirrors
from ._renderings import Rendering, RenderingTask
from ._run_log import RunLog
from ._server_run import ServerRun

_LOGGER = logging.getLogger('pydantic_deep')

CANCEL_SECONDS = 1.0
"""Interval at which the store is asked for requests of other processes to cancel runs, while this one executes any."""

CLEANUP_SECONDS = 5
"""How long cancelled runs may take to commit their interrupted versions when the server stops."""


REFUSED_HEADERS = {'Retry-After': '5'}
"""Headers of the errors for runs that are refused for a limited time."""


class RunPool:
    """The runs of this process. Use it with `async with`: on exit, running runs are drained, then cancelled."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        metrics: ServerMetrics | None = None,
        mirrors: RunMirrors | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """Create a pool.

        Args:
            settings: The limits of runs and of their logs.
            metrics: Counts ended runs.
            mirrors: Mirrors runs that workers execute.
            dispatcher: Delivers queued runs to workers.
        """
        self._settings = settings
        self._metrics = metrics
        self._running: dict[str, ServerRun] = {}
        self._ended: LogCache[ServerRun] = LogCache(
            retention_seconds=settings.log_retention_seconds, max_bytes=settings.max_log_bytes, clock=time.monotonic
        )
        self._dispatcher = dispatcher
        self._mirrors = mirrors
        if mirrors is not None:
            mirrors.on_end = self._keep
        self.is_recovering = False
        """Whether suspended runs of crashed processes are being resumed: see `_lifespan.recover`."""
        self.takes_over: Callable[[RunRecord], bool] = lambda run: False
        """Returns whether the worker of this process is about to continue a run of a crashed process."""
        self.resuming: dict[str, str | None] = {}
        """Suspended runs that are being resumed on request, with the key of each request."""
        self._resumed: dict[str, CancellationToken] = {}
        self._deadline: float | None = None
        self._stopped = anyio.Event()
        self._tasks: TaskGroup | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._open())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        try:
            async with anyio.create_task_group() as self._tasks:
                if self._mirrors is not None:
                    self._tasks.start_soon(self._mirrors.run)
                    if self._mirrors.queue.is_shared:
                        self._tasks.start_soon(self._look_for_cancellations)
                try:
                    yield
                    await self.drain()
                    await self.stop()
                finally:
                    self._tasks.cancel_scope.cancel()
        finally:
            self._ended.clear()
            if self._mirrors is not None:
                self._mirrors.clear()

    @property
    def queue(self) -> RunQueue | None:
        """The queue of the store; `None` without workers."""
        return None if self._mirrors is None else self._mirrors.queue

    @property
    def tasks(self) -> TaskGroup:
        """The task group for tasks of the server, such as recovery.

        Raises:
            RuntimeError: The pool is not open.
        """
        if self._tasks is None:
            raise RuntimeError('The run pool is not open. Use it with `async with`.')
        return self._tasks

    @property
    def is_closed(self) -> bool:
        """Whether new runs are refused because the server is stopping."""
        return self._deadline is not None

    @property
    def running_count(self) -> int:
        """The number of running runs."""
        return len(self._running)

    @property
    def log_bytes(self) -> int:
        """The total size of all logs in bytes."""
        return sum(log.size_bytes for log in self._logs())

    @property
    def log_memory_bytes(self) -> int:
        """The part of the logs that is in memory, in bytes."""
        return sum(log.memory_bytes for log in self._logs())

    def get(self, run_id: str) -> ServerRun | None:
        """Return a running run, a mirrored one, or an ended one with a cached log."""
        mirrored = None if self._mirrors is None else self._mirrors.get(run_id)
        return self._running.get(run_id) or mirrored or self._ended.get(run_id)

    async def follow(self, run_id: str) -> ServerRun | None:
        """Return a run that `get` returns, or mirror a queued one; `None` if the run is unknown here."""
        run = self.get(run_id)
        if run is not None or self._mirrors is None:
            return run
        record = await self._mirrors.queue.get(run_id)
        if record is None:
            return None
        run = self.get(run_id) or self._mirrors.add(record)
        await run.caught_up.wait()
        return run

    async def request_cancel(self, run: ServerRun) -> None:
        """Request to cancel a mirrored run. Its worker reads the request, and the log gets the end of the run.

        Raises:
            StoreError: The request could not be stored.
        """
        assert self._mirrors is not None  # noqa: S101 - the run is mirrored
        await self._mirrors.queue.request_cancel(run.id)
        if self._dispatcher is not None:
            try:
                await self._dispatcher.cancel(run.id, conversation_id=run.conversation_id)
            except DispatcherUnavailableError as error:
                _LOGGER.warning('%s', error)

    async def cancel_requested(self) -> None:
        """Cancel the runs that this process executes, and that this or another one was asked to cancel.

        Raises:
            StoreError: The requests could not be read.
        """
        tokens = {**self._resumed, **{run.id: run.token for run in self._running.values()}}
        if tokens and self.queue is not None:
            for run_id in tokens.keys() & await self.queue.cancelled():
                tokens[run_id].cancel()

    async def _look_for_cancellations(self) -> None:
        outage = OutageLog('The server', 'store')
        while True:
            await anyio.sleep(CANCEL_SECONDS)
            try:
                await self.cancel_requested()
                outage.note_success()
            except StoreUnavailableError as error:
                outage.note_failure(error)
            except Exception:  # outermost boundary: a damaged row does not end the server
                _LOGGER.exception('The server could not look for cancelled runs')

    @contextmanager
    def resumption(self) -> Generator[Callable[[str], CancellationToken]]:
        """Yield a function that returns the token of a suspended run, by its id, which the block resumes: another process
        can then cancel it.
        """
        resumed: set[str] = set()

        def make_token(run_id: str) -> CancellationToken:
            resumed.add(run_id)
            return self._resumed.setdefault(run_id, CancellationToken())

        try:
            yield make_token
        finally:
            for run_id in resumed:
                self._resumed.pop(run_id, None)

    def _keep(self, run: ServerRun) -> None:
        """Cache the log of an ended run, unless it was refused."""
        run.mark_ended()
        if run.refusal is not None:
            _discard_logs(run)
            return
        self._ended.put(run.id, run, lambda: run.logs)

    def runs_of(self, owner: str) -> list[ServerRun]:
        """Return the runs of an owner, newest first: running ones, and ended ones with a cached log."""
        self._ended.evict()
        known = [*self._ended.items(), *self._active]
        return sorted((run for run in known if run.owner == owner), key=lambda run: run.id, reverse=True)

    def run_from(self, version_id: str) -> ServerRun | None:
        """Return the running run that started from a version, unless the store is known to have its end."""
        return next((run for run in self._active if run.base_id == version_id and not run.has_stored_end), None)

    def runs_in(self, conversation_id: str) -> list[ServerRun]:
        """Return the running runs of a conversation, oldest first."""
        return [run for run in self._active if run.conversation_id == conversation_id]

    @property
    def _active(self) -> list[ServerRun]:
        return [*self._running.values(), *(() if self._mirrors is None else self._mirrors.runs)]

    def start(
        self,
        version: AgentVersion[Any, Any],
        options: TurnOptions,
        *,
        owner: str,
        key_id: str | None = None,
        session_id: str | None = None,
        renderings: Mapping[str, Rendering] | None = None,
    ) -> ServerRun:
        """Start a run and return it immediately.

        Errors of the turn itself are events in the log: the run then fails before it has begun.

        Args:
            version: The version to start from.
            options: The options of the turn. The pool sets the id of the run and its cancellation token.
            owner: The owner of the conversation.
            key_id: The key of the request, for its limit.
            session_id: The caller's own session id.
            renderings: Other encodings of the run, by name. Each has a log in `ServerRun.renderings`.

        Raises:
            ServerError: The server is stopping, too many runs are running, or one has started from this version.
            ApprovalsPendingError: The version has pending approvals, and the options contain a prompt.
        """
        self._check_start(version, key_id)
        run = ServerRun(
            id=new_id(),
            conversation_id=version.conversation_id,
            base_id=version.id,
            owner=owner,
            key_id=key_id,
            agent_name=version.agent_name,
            session_id=session_id,
            log=self._new_log(),
            renderings={name: self._new_log() for name in renderings or {}},
        )
        try:
            stream = version.stream(replace(options, run_id=run.id, cancellation_token=run.token))
        except BaseException:
            _discard_logs(run)
            raise
        run.begun = stream.begun
        self._running[run.id] = run
        self.tasks.start_soon(self._run_task, run, version, stream, dict(renderings or {}), name=f'run {run.id}')
        return run

    async def submit(
        self,
        version: AgentVersion[Any, Any],
        options: TurnOptions,
        store: SqlStore,
        *,
        owner: str,
        key_id: str | None = None,
        session_id: str | None = None,
    ) -> ServerRun:
        """Queue a run for workers, and return it as soon as it is stored. The arguments are those of `start`.

        Raises:
            ServerError: The server is stopping, too many runs are active, or one has started from this version.
            ApprovalsPendingError: The version has pending approvals, and the options contain a prompt.
            ApprovalAnsweredError: An approval has already been answered.
        """
        assert self._mirrors is not None  # noqa: S101 - the pool of a server has a queue
        self._refuse_start(version)
        with _refusals():
            record = await submit(
                version,
                options,
                store,
                dispatcher=self._dispatcher,
                account=owner,
                key_id=key_id,
                session_id=session_id,
                max_active=self._settings.max_runs,
                max_of_key=self._settings.max_runs_per_key,
            )
        return self._mirrors.add(record)

    async def submit_rest(self, run: RunRecord, *, owner: str, key_id: str | None) -> None:
        """Queue the rest of a suspended run for workers, which find it in the store.

        Args:
            run: The first attempt of the run.
            owner: The owner of the conversation.
            key_id: The key of the request, for its limit.

        Raises:
            ServerError: Too many runs are active, or it is queued already.
        """
        assert self.queue is not None  # noqa: S101 - the pool of a server has a queue
        rest = QueuedRunRecord(
            run_id=run.id,
            conversation_id=run.conversation_id,
            base_id=run.base_id,
            agent_name=run.agent_name,
            account=owner,
            key_id=key_id,
            priority=0,
            prompt=None,
            options='{}',
            submitted_at=now(),
        )
        settings = self._settings
        try:
            with _refusals():
                await self.queue.add(rest, max_active=settings.max_runs, max_of_key=settings.max_runs_per_key)
        except ValueError as error:
            raise ServerError('conflict', str(error)) from None

    def clear_logs(self) -> None:
        """Remove ended runs and their logs. Their events can be rebuilt from the store."""
        self._ended.clear()

    def close(self) -> None:
        """Refuse new runs. Running ones have `shutdown_seconds` from now to end."""
        if self._deadline is None:
            self._deadline = anyio.current_time() + self._settings.shutdown_seconds

    async def drain(self) -> None:
        """Refuse new runs, and wait until the running ones have ended or the deadline has passed."""
        self.close()
        with anyio.CancelScope(deadline=self._deadline or 0):
            await self._wait_for_all()

    async def stop(self) -> None:
        """Refuse new runs and cancel the running ones. Their work is committed, up to a time limit.

        Then the streams of runs of other processes end. They have no end of their run, so that clients look for it
        elsewhere.
        """
        self.close()
        for run in list(self._running.values()):
            run.cancel()
        with anyio.move_on_after(CLEANUP_SECONDS):
            await self._wait_for_all()
        self._stopped.set()
        if self._mirrors is not None:
            self._mirrors.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` has ended, so that runs of other processes are not followed any more."""
        return self._stopped.is_set()

    async def pause(self, seconds: float) -> None:
        """Wait before the store is asked again for a run of another process, or until `is_stopped`."""
        with anyio.move_on_after(seconds):
            await self._stopped.wait()

    async def _wait_for_all(self) -> None:
        while self._running:
            await next(iter(self._running.values())).wait()

    def _check_start(self, version: AgentVersion[Any, Any], key_id: str | None) -> None:
        self._refuse_start(version)
        self._check_capacity_here(key_id)

    def _refuse_start(self, version: AgentVersion[Any, Any]) -> None:
        self._refuse_if_closed()
        busy = self.run_from(version.id)
        if busy is not None:
            raise busy_error(busy.id)

    def _refuse_if_closed(self) -> None:
        if self.is_closed:
            message = 'The server is stopping and starts no runs. Try again after its restart.'
            raise ServerError('unavailable', message, headers=REFUSED_HEADERS)

    async def check_capacity(self, key_id: str | None) -> None:
        """Refuse a run that cannot start now, before something is stored for it that would be left behind.

        Raises:
            ServerError: The server is stopping, or the limit of the server or of the key is reached.
        """
        self._refuse_if_closed()
        if self._dispatcher is None and self._settings.worker:
            self._check_capacity_here(key_id)
            return
        assert self.queue is not None  # noqa: S101 - the pool of a server has a queue
        with _refusals():
            await self.queue.check_limits(
                key_id, max_active=self._settings.max_runs, max_of_key=self._settings.max_runs_per_key
            )

    def _check_capacity_here(self, key_id: str | None) -> None:
        """Refuse a run that this process cannot execute now. Runs that are being resumed count too."""
        keys = [*(run.key_id for run in self._running.values()), *self.resuming.values()]
        if len(keys) >= self._settings.max_runs:
            raise _too_many_error(len(keys), 'of this server')
        count = keys.count(key_id)
        if key_id is not None and count >= self._settings.max_runs_per_key:
            raise _too_many_error(count, 'of this key')

    async def _run_task(
        self,
        run: ServerRun,
        version: AgentVersion[Any, Any],
        stream: TurnStream[Any, Any],
        renderings: Mapping[str, Rendering],
    ) -> None:
        async with anyio.create_task_group() as group:  # renderings may end after the run
            renderers = [RenderingTask.start(group, name, run, render) for name, render in renderings.items()]
            try:
                with session_scope(run.session_id):
                    await self._execute(run, version, stream, renderers)
            finally:
                del self._running[run.id]
                self._keep(run)
                if self._metrics is not None and run.outcome is not None and run.refusal is None:
                    self._metrics.run_ended(run.agent_name, run.outcome, run.usage)

    async def _execute(
        self,
        run: ServerRun,
        version: AgentVersion[Any, Any],
        stream: TurnStream[Any, Any],
        renderers: list[RenderingTask],
    ) -> None:
        """Execute the run, and append its events to the log."""
        translator = RunEvents(
            run_id=run.id,
            agent_name=run.agent_name,
            conversation_id=run.conversation_id,
            session_id=run.session_id,
            usage=lambda: stream.usage,
            usage_before=version.usage,
        )
        failure: BaseException | None = None

        def push(event: TurnEvent) -> None:
            for renderer in renderers:
                renderer.push(event)

        try:
            failure = await emit_turn(
                stream, translator, run_id=run.id, base_id=version.id, emit=run.emit, push=push if renderers else None
            )
        except BaseException as error:
            failure = error
            raise
        finally:
            if isinstance(failure, VersionBusyError | VersionNotFoundError) and not run.begun.is_set():
                run.refusal = failure
            run.usage = translator.usage
            for renderer in renderers:
                renderer.end(failure)

    def _new_log(self) -> RunLog:
        return RunLog(memory_bytes=self._settings.log_memory_bytes)

    def _logs(self) -> list[RunLog]:
        running = [log for run in self._active for log in run.logs]
        return [*running, *self._ended.logs]


def busy_error(run_id: str) -> ServerError:
    """Return the error for a version that another run has started from."""
    return ServerError('conflict', str(VersionBusyError(run_id)), facts={'run_id': run_id})


@contextmanager
def _refusals() -> Generator[None]:
    """Raise the error of the server if the queue refuses a run."""
    try:
        yield
    except QueueLimitError as error:
        raise ServerError('rate_limited', str(error), headers=REFUSED_HEADERS) from None
    except VersionBusyError as error:
        raise busy_error(error.run_id) from None


def _too_many_error(count: int, of: str) -> ServerError:
    message = f'{count} runs {of} are already active. Wait until one has ended, or cancel one.'
    return ServerError('rate_limited', message, headers=REFUSED_HEADERS)


def _discard_logs(run: ServerRun) -> None:
    for log in run.logs:
        log.discard()
