"""`Worker`: executes queued runs, and takes over the runs of processes that crashed."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic_ai import CancellationToken

from pydantic_deep._checks import check_functions, check_index, check_member, check_object, check_seconds, check_store
from pydantic_deep._logs.outage_log import OutageLog
from pydantic_deep._session_id import session_scope
from pydantic_deep.store import (
    QueuedRunRecord,
    RunRecord,
    RunState,
    SqlStore,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
    UnknownCommitError,
)
from pydantic_deep.streaming import StreamEvent
from pydantic_deep.versions import SupportsFilling, VersionedAgent, has_moved_on

from ._log_writer import LogWriter
from ._protocol import Dispatcher
from ._queued_turn import OpenBackend, QueuedTurn, describe_problem
from ._stored_events import load_attempts
from ._worker_events import WorkerEvent, WorkerEventKind
from .errors import UnknownAgentError

_LOGGER = logging.getLogger('pydantic_deep')

POLL_SECONDS = 0.25
"""Interval at which a worker looks for runs that other processes have queued."""

ORPHAN_SECONDS = 1.0
"""Interval at which a worker looks for runs of crashed processes."""

CONFIRM_SECONDS = 2.0
"""How long the lock of a process must be missing before its runs are taken over. A process that lost its connection to
the database acquires its lock again in this time.
"""

CANCEL_SECONDS = 0.5
"""Interval at which a worker looks for requests to cancel its runs."""

BEAT_SECONDS = 5.0
"""Interval at which a worker reports that its runs are alive."""

CLEAN_SECONDS = 60.0
"""Interval at which a worker removes idle directories of conversations."""

PRUNE_SECONDS = 60.0
"""Interval at which a worker removes old runs from the queue."""

STORE_SECONDS = 5.0
"""How long a worker that stops waits for its store to give runs back. A store that hangs delays the worker no longer."""

RETRY_SECONDS = (1.0, 5.0, 15.0, 60.0)
"""How long a run that could not be continued waits for its next attempts here."""

_FORGET_SECONDS = 600.0
"""How long after its last delay the attempts of a run are counted."""

_ALL = 1_000_000
"""A limit above any number of running runs."""

_PRUNED = 1000
"""The number of runs that `RunQueue.prune` removes at most."""


@dataclass(kw_only=True, eq=False)
class _Active:
    """A run that this worker executes."""

    agent_name: str
    token: CancellationToken = field(default_factory=CancellationToken)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_given_back: bool = False


class _Retry(NamedTuple):
    """A run that could not be executed here."""

    attempts: int
    until: float
    """When it is tried again."""
    is_cancelled: bool
    """Whether it was cancelled before that."""


class _Missing:
    """Processes whose locks in the store are missing, and since when."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def confirm(self, owners: Collection[str]) -> set[str]:
        """Return those of the owners without a lock that have been without it long enough."""
        now = anyio.current_time()
        self._since = {owner: self._since.get(owner, now) for owner in owners}
        return {owner for owner, at in self._since.items() if now - at >= CONFIRM_SECONDS}


_OPEN_DISPATCHER = 'Open one: `async with open_dispatcher(url) as dispatcher:`.'


class Worker:
    """Executes the queued runs of a store, and takes over the runs of crashed processes. Any number may run.

    ```text
    async with open_store(url) as store:
        await Worker({'analyst': VersionedAgent(agent, store)}, store).run()
    ```

    A crashed process is one that does not hold its lock in the store. Its runs are continued side by side: finished
    calls are not repeated, and calls that may have run and have side effects become approvals.

    Args:
        agents: The agents, by the name that runs have.
        store: The store, which stays open as long as the worker runs.
        dispatcher: Delivers runs; without it, the worker finds them in the store.
        concurrency: The maximum number of runs at the same time.
        make_backend: Returns the files of a conversation, if the store cannot open them itself. If it
            supports that, as `ConversationDirectories` does, the worker fills them before turns, and removes idle ones.
        drain_seconds: How long running runs may take to end when the worker stops. The others are given back.
        retention_seconds: How long the records and events of ended runs remain in the queue.
        on_event: Called when a run begins, is taken over, ends, or is given back.

    Raises:
        ValueError: An agent has another store.
        ValidationError: A number is invalid.
    """

    def __init__(
        self,
        agents: Mapping[str, VersionedAgent[Any, Any]],
        store: SqlStore,
        *,
        dispatcher: Dispatcher | None = None,
        concurrency: int = 32,
        make_backend: OpenBackend | None = None,
        drain_seconds: float = 20,
        retention_seconds: float = 600,
        on_event: Callable[[WorkerEvent], object] | None = None,
    ) -> None:
        check_index('concurrency', concurrency, least=1)
        check_seconds('retention_seconds', retention_seconds)
        if drain_seconds != math.inf:
            check_seconds('drain_seconds', drain_seconds)
        if dispatcher is not None:
            check_member('dispatcher', dispatcher, 'submit', 'Dispatcher', _OPEN_DISPATCHER)
        check_store(store)
        check_functions(make_backend=make_backend, on_event=on_event)
        check_object('agents', agents, Mapping, 'Pass names with agents: `{"analyst": VersionedAgent(agent, store)}`.')
        for name, agent in agents.items():
            check_object('agents', agent, VersionedAgent, 'Pass `VersionedAgent(agent, store)`.')
            if agent.store is not store:
                raise ValueError(
                    f'The agent {name!r} has the store {agent.store.url!r}, and the worker {store.url!r}. Pass one object to '
                    'both.'
                )
        self._agents = agents
        self._store = store
        self._queue = store.queue
        self._dispatcher = dispatcher
        self._concurrency = concurrency
        self._make_backend = make_backend
        self._drain_seconds = drain_seconds
        self._retention_seconds = retention_seconds
        self._on_event = on_event
        self._active: dict[str, _Active] = {}
        self._limit = anyio.CapacityLimiter(concurrency)
        self._stopping = anyio.Event()
        self._wake = anyio.Event()
        self._ended = anyio.Event()
        self._finished = anyio.Event()
        self._drain = anyio.CancelScope()
        self._failure: StoreClosedError | None = None
        self._claims: set[anyio.CancelScope] = set()
        self._group: TaskGroup | None = None
        self._missing_workers = _Missing()
        self._missing_owners = _Missing()
        self._next_prune = 0.0
        self._retries: dict[str, _Retry] = {}
        self._moved_on: set[str] = set()
        self._outage = OutageLog('The worker', 'store')

    def __repr__(self) -> str:
        return f'Worker({sorted(self._agents)}, {self._store.url!r})'

    @property
    def active_count(self) -> int:
        """The number of runs that the worker executes now."""
        return len(self._active)

    def takes_over(self, run: RunRecord) -> bool:
        """Return whether the worker continues a run once its process is known to have crashed: not after it has failed to."""
        is_ours = run.owner != self._store.owner and run.agent_name in self._agents
        return is_ours and run.id not in self._retries

    def stop(self) -> None:
        """Take no more runs, and end `run` when the running ones have ended or were given back."""
        self._stopping.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work until `stop` is called or the task is cancelled. A store that is unavailable is waited for.

        After `stop`, running runs may end for `drain_seconds`. Then, or at once if the task is cancelled, the others are
        given back. A worker runs once.

        Raises:
            StoreClosedError: The store was closed.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._serve)
            task_status.started()
            try:
                await self._finished.wait()
            finally:
                self._hurry()
        if self._failure is not None:
            raise self._failure

    async def _serve(self) -> None:
        loops: list[tuple[Callable[[], Awaitable[None]], float]] = [
            (self._look_for_runs, POLL_SECONDS),
            (self._look_for_cancelled_runs, ORPHAN_SECONDS),
            (self._look_for_orphans, ORPHAN_SECONDS),
            (self._look_for_cancellations, CANCEL_SECONDS),
            (self._report, BEAT_SECONDS),
        ]
        if isinstance(self._make_backend, SupportsFilling):
            loops.append((partial(self._clean_up, self._make_backend), CLEAN_SECONDS))
        if self._dispatcher is not None:
            loops.append((partial(self._work, self._dispatcher), ORPHAN_SECONDS))
        with anyio.CancelScope(shield=True):  # a cancelled run would end as interrupted instead of being given back
            async with anyio.create_task_group() as self._group:
                for step, seconds in loops:
                    self._group.start_soon(self._repeat, step, seconds)
                await self._stopping.wait()
                with self._drain, anyio.move_on_after(self._drain_seconds):
                    await self._wait_until_idle()
                with anyio.move_on_after(STORE_SECONDS):
                    await self._give_back()
                for scope in self._claims:
                    scope.cancel()
                self._group.cancel_scope.cancel()
        self._finished.set()

    def _hurry(self) -> None:
        self._stopping.set()
        self._drain.cancel()

    async def _repeat(self, step: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Run a step again and again; an error in it ends neither the worker nor its runs."""
        while True:
            try:
                await step()
            except StoreClosedError as error:
                self._failure = error
                self._hurry()
                return
            except StoreUnavailableError as error:
                self._outage.note_failure(error)
                await anyio.sleep(ORPHAN_SECONDS)
            except Exception:  # outermost boundary: one damaged row does not stop the worker
                _LOGGER.exception('The worker could not look for work')
                await anyio.sleep(ORPHAN_SECONDS)
            with anyio.move_on_after(seconds):
                await (self._wake.wait() if step == self._look_for_runs else anyio.sleep_forever())

    async def execute(self, run_id: str) -> None:
        """Execute a queued run to its end or its next pause: begin it, or continue it if its process crashed.

        Nothing happens if the run has ended, cannot begin yet, or is alive elsewhere. The error of a run that fails is
        in the store.

        Raises:
            UnknownAgentError: The worker does not have its agent.
        """
        known = await self._queue.get(run_id)
        if known is None:
            _LOGGER.warning(
                'The run %s is not in the store %r, or ended long ago. Workers of another store must not have the same '
                'dispatcher: they take its runs, which then begin later.',
                *(run_id, self._store.url),
            )
            return
        if known.state == 'ended' or self._stopping.is_set():
            return
        if known.agent_name not in self._agents:
            error = UnknownAgentError(run_id, known.agent_name, sorted(self._agents))
            await self._queue.explain(run_id, f'It needs a worker with the agent {known.agent_name!r}.')
            raise error
        await self._claim_and_execute(known)

    async def _claim_and_execute(self, known: QueuedRunRecord) -> None:
        run_id = known.run_id
        if run_id in self._active:
            return
        self._active[run_id] = active = _Active(agent_name=known.agent_name)
        try:
            # A cancelled run is only ended, which waits for no other run.
            async with self._limit if known.cancelled_at is None else nullcontext():
                run = None if self._stopping.is_set() else await self._claim(run_id)
                if run is not None:
                    again: WorkerEventKind = 'resumed' if known.worker is None else 'taken_over'
                    await self._report_run(run, 'began' if run.epoch == 1 else again)
                    await self._execute(run, active)
                    self._wake.set()  # the next turn of the conversation can begin
        finally:
            self._forget(run_id)

    async def _claim(self, run_id: str) -> QueuedRunRecord | None:
        """Claim a run even while the caller is cancelled: a claim that nobody knows of would end only with the process.

        A store that is slow is waited for, because the claim takes effect even if nobody waits for its result.
        """
        with anyio.CancelScope(shield=True) as scope:
            self._claims.add(scope)  # the end of the worker cancels it
            try:
                return await self._queue.claim(run_id)
            except UnknownCommitError:
                await self._end_claim(run_id, None, is_over=False)
                raise
            finally:
                self._claims.discard(scope)
        return None

    async def _execute(self, run: QueuedRunRecord, active: _Active) -> None:
        turn = QueuedTurn(self._agents[run.agent_name], self._store, run, active.token, self._make_backend)
        writer = LogWriter(self._queue, run)
        is_over = False
        try:
            with active.scope, session_scope(turn.session_id):
                async with writer.open():
                    is_over = await turn.run(partial(_emit_unless_given_back, active, writer))
        except Exception as error:  # the run is continued later, here or elsewhere
            _LOGGER.warning('The run %s stays queued', run.run_id, exc_info=True)
            turn.problem = describe_problem(error)
        else:
            if not is_over and turn.problem is not None:
                _LOGGER.warning('The run %s stays queued: %s', run.run_id, turn.problem)
        finally:
            if is_over:
                self._retries.pop(run.run_id, None)
            else:
                self._postpone(run.run_id, is_cancelled=run.cancelled_at is not None)
                if active.is_given_back:  # it may have begun meanwhile
                    with anyio.move_on_after(STORE_SECONDS, shield=True):
                        await self._release_attempts(run.run_id)
            await self._end_claim(run.run_id, turn.problem, is_over=is_over)
        await self._report_run(run, 'ended' if is_over else 'given_back')

    async def _end_claim(self, run_id: str, problem: str | None, *, is_over: bool) -> None:
        """End a run in the queue, or return it; wait for a store that is unavailable."""
        end = self._queue.end if is_over else self._queue.release
        while True:
            with anyio.move_on_after(STORE_SECONDS, shield=True):
                try:
                    await end(run_id, problem=problem)
                except StoreUnavailableError as error:
                    self._outage.note_failure(error)
                else:
                    return
            await anyio.sleep(ORPHAN_SECONDS)

    def _postpone(self, run_id: str, *, is_cancelled: bool = False) -> None:
        count = self._retries[run_id].attempts if run_id in self._retries else 0
        delay = RETRY_SECONDS[min(count, len(RETRY_SECONDS) - 1)]
        self._retries[run_id] = _Retry(count + 1, anyio.current_time() + delay, is_cancelled)

    def _held(self) -> set[str]:
        """Return the runs that are not to be started now: they are active, or postponed."""
        now = anyio.current_time()
        return self._active.keys() | {run_id for run_id, retry in self._retries.items() if retry.until > now}

    def _is_cancelled_since(self, run_id: str) -> bool:
        """Return whether a cancelled run was postponed before it was cancelled: it ends now."""
        retry = self._retries.get(run_id)
        return run_id not in self._active and retry is not None and not retry.is_cancelled

    @property
    def _free(self) -> int:
        return 0 if self._stopping.is_set() else self._concurrency - len(self._active)

    async def _work(self, dispatcher: Dispatcher) -> None:
        await dispatcher.work(self.execute, agent_names=list(self._agents), concurrency=self._concurrency)

    async def _clean_up(self, directories: SupportsFilling) -> None:
        await directories.clean_up(self._store)

    async def _look_for_runs(self) -> None:
        """Execute runs that no engine has delivered, and those of workers that crashed."""
        self._wake = anyio.Event()
        if self._free > 0:
            await self._take_runs(self._free)

    async def _look_for_cancelled_runs(self) -> None:
        """End cancelled runs of other workers while this one may execute no further runs."""
        if self._free <= 0 and not self._stopping.is_set():
            await self._take_runs(self._concurrency, only_cancelled=True)

    async def _take_runs(self, limit: int, *, only_cancelled: bool = False) -> None:
        dead = self._missing_workers.confirm(await self._queue.dead_workers())
        held = self._held()
        runs = await self._queue.ready(
            self._agents, workers=dead, limit=limit + len(held), only_cancelled=only_cancelled
        )
        held -= {run.run_id for run in runs if run.cancelled_at is not None and self._is_cancelled_since(run.run_id)}
        free = limit if only_cancelled else max(0, self._free)
        for run in [run for run in runs if run.run_id not in held][:free]:
            self._start(run.run_id, partial(self._claim_and_execute, run))

    async def _look_for_orphans(self) -> None:
        """Continue runs of crashed processes that were not queued."""
        orphans = [run for run in await self._store.orphans(_ALL) if run.parent_run_id is None]
        self._outage.note_success()
        own = self._store.owner  # if the end of an own run could not be stored, people decide
        missing = self._missing_owners.confirm({run.owner for run in orphans if run.owner and run.owner != own})
        self._moved_on &= {run.id for run in orphans}
        for run in orphans:
            if self._free <= 0:
                return
            is_ours = run.owner in missing and run.agent_name in self._agents
            if is_ours and run.id not in self._held() | self._moved_on and await self._is_abandoned(run):
                self._active[run.id] = active = _Active(agent_name=run.agent_name)
                self._start(run.id, partial(self._recover, run, active))

    async def _is_abandoned(self, run: RunRecord) -> bool:
        """Return whether an orphan is in no queue, and its conversation has not moved on."""
        attempts = await load_attempts(self._store, run.id)
        queued = await self._queue.get(attempts[0].id) if attempts else None
        if not attempts or (queued is not None and queued.state != 'ended'):
            return False
        if await has_moved_on(self._store, run):
            self._moved_on.add(run.id)
            return False
        return True

    async def _recover(self, run: RunRecord, active: _Active) -> None:
        try:
            async with self._limit:
                await self._report_run(run, 'taken_over')
                agent = self._agents[run.agent_name]
                with active.scope:
                    if await self._queue.cancelled_among([run.id]):
                        await agent.cancel(run.id)
                    else:
                        await agent.recover(run.id, make_token=lambda _: active.token)
                await self._report_run(run, 'ended')
        finally:
            self._postpone(run.id)
            self._forget(run.id)

    def _forget(self, run_id: str) -> None:
        del self._active[run_id]
        self._ended.set()

    async def _look_for_cancellations(self) -> None:
        cancelled = await self._queue.cancelled() if self._active else ()
        for run_id in self._active.keys() & cancelled:
            self._active[run_id].token.cancel()

    async def _report_run(self, run: QueuedRunRecord | RunRecord, kind: WorkerEventKind) -> None:
        """Report a change of a run; at its end, with the state of its last attempt."""
        if self._on_event is None:
            return
        state: RunState = 'running'
        run_id = run.run_id if isinstance(run, QueuedRunRecord) else run.id
        try:
            if kind == 'ended':
                attempts = await load_attempts(self._store, run_id)
                is_cancelled = isinstance(run, QueuedRunRecord) and run.cancelled_at is not None
                state = attempts[-1].state if attempts else 'interrupted' if is_cancelled else 'failed'
                kind = 'given_back' if state == 'running' else kind
            self._on_event(
                WorkerEvent(
                    kind=kind,
                    run_id=run_id,
                    agent_name=run.agent_name,
                    conversation_id=run.conversation_id,
                    state=state,
                )
            )
        except Exception:  # outermost boundary: a claimed run is executed, whoever listens
            _LOGGER.exception('The event %r of the run %s could not be reported', kind, run_id)

    async def _report(self) -> None:
        """Report running runs, and remove the records of old ones."""
        now = anyio.current_time()
        self._retries = {id: retry for id, retry in self._retries.items() if retry.until > now - _FORGET_SECONDS}
        if self._active:
            await self._queue.beat()
        if now >= self._next_prune and await self._queue.prune(self._retention_seconds) < _PRUNED:
            self._next_prune = now + PRUNE_SECONDS

    def _start(self, run_id: str, execute: Callable[[], Awaitable[None]]) -> None:
        assert self._group is not None  # noqa: S101 - the loops run in it
        self._group.start_soon(self._logged, run_id, execute)

    async def _logged(self, run_id: str, execute: Callable[[], Awaitable[None]]) -> None:
        try:
            await execute()
        except Exception:  # outermost boundary: a run ends neither the worker nor other runs
            _LOGGER.exception('The run %s could not be executed', run_id)

    async def _give_back(self) -> None:
        """Give up the runs that are still running, so that other workers continue them now."""
        for run_id, active in list(self._active.items()):
            active.is_given_back = True
            await self._release_attempts(run_id)
            active.scope.cancel()
        await self._wait_until_idle()

    async def _release_attempts(self, run_id: str) -> None:
        released: str | None = None
        try:
            while (attempts := await load_attempts(self._store, run_id)) and attempts[-1].id != released:
                released = attempts[-1].id  # another attempt may begin meanwhile
                await self._release(released)
        except StoreError as error:
            _LOGGER.warning('The run %s is continued when this process has ended: %s', run_id, error)

    async def _wait_until_idle(self) -> None:
        while self._active:
            self._ended = anyio.Event()
            await self._ended.wait()

    async def _release(self, run_id: str) -> None:
        await self._store.release_run(run_id)
        for child in await self._store.runs(parent_run_id=run_id, states=['running'], limit=_ALL):
            await self._release(child.id)


def _emit_unless_given_back(active: _Active, writer: LogWriter, event: StreamEvent) -> None:
    if not active.is_given_back:  # another worker continues the events
        writer.emit(event)
