"""`RunHub`: runs are tasks of the server's own, and no request's. Clients read their logs, leave, and come back.

Not here: who may see a run (`access`), and runs of other processes (`_stored_run_events`).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from pydantic_ai import AgentRunResultEvent, AgentStreamEvent, UserContent
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage, UsageLimits

from pydantic_deep._session_id import session_scope
from pydantic_deep.approvals import Decision
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.server._metrics import ServerMetrics
from pydantic_deep.server._settings import ServerSettings
from pydantic_deep.store import new_id
from pydantic_deep.streaming import RunEvents, StatusEvent, StreamEvent
from pydantic_deep.streaming._failures import FORESEEN
from pydantic_deep.versions import AgentVersion, TurnStream

from ._log_cache import LogShelf
from ._run_log import RunLog
from ._server_run import ServerRun

_LOGGER = logging.getLogger('pydantic_deep')

CLEANUP_SECONDS = 5
"""How long a cancelled run may take to be kept as an interrupted version when the server stops."""

Event: TypeAlias = AgentStreamEvent | AgentRunResultEvent[Any]
"""What pydantic-ai tells of a run."""

Rendering: TypeAlias = Callable[[AsyncIterator[Event]], AsyncIterator[bytes]]
"""Makes another form of a run, for clients of another protocol: an error of the run is raised by what it iterates."""

Turn: TypeAlias = str | Sequence[UserContent] | Mapping[str, Decision]
"""What a run begins with: what the user says, or answers to what waits, by the `id` of each of `pending`."""


class RunRefusedError(DeepAgentError):
    """A run cannot begin now."""


class HubClosedError(RunRefusedError):
    """The server stops."""

    def __init__(self) -> None:
        super().__init__('The server stops and begins no runs. Try again when it is back.')


class TooManyRunsError(RunRefusedError):
    """As many runs work as may: of the key, or in all."""

    def __init__(self, count: int, of: str) -> None:
        super().__init__(f'{count} runs {of} work already. Wait until one has ended, or cancel one.')


class VersionBusyError(RunRefusedError):
    """A run works on what comes after a version.

    Attributes:
        run_id: The run.
    """

    def __init__(self, version_id: str, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f'The run {run_id} goes on from the version {version_id} now. Wait for it, cancel it, or go on from another.'
        )


class RunHub:
    """All runs of this process. Use it as `async with`: leaving waits for those that work, and stops what takes longer."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        metrics: ServerMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to run.

        Args:
            settings: How many runs may work, and how long and large their logs may be.
            metrics: Where runs that ended are counted.
            clock: Seconds that never go back.
        """
        self._settings = settings
        self._metrics = metrics
        self._running: dict[str, ServerRun] = {}
        self._ended: LogShelf[ServerRun] = LogShelf(
            retention_seconds=settings.log_retention_seconds, max_bytes=settings.max_log_bytes, clock=clock
        )
        self.is_recovering = False
        """Whether the suspended runs of crashed processes are being resumed: see `_lifespan.recover`."""
        self.resuming: dict[str, str | None] = {}
        """The suspended runs that somebody has asked to resume, each with the key that asked."""
        self._deadline: float | None = None
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
                try:
                    yield
                    await self.drain()
                    await self.stop()
                finally:
                    self._tasks.cancel_scope.cancel()
        finally:
            self._ended.clear()

    @property
    def tasks(self) -> TaskGroup:
        """Where tasks run that belong to the server, such as recovery.

        Raises:
            RuntimeError: The hub is not open.
        """
        if self._tasks is None:
            raise RuntimeError('The hub is not open: use it as `async with`.')
        return self._tasks

    @property
    def is_closed(self) -> bool:
        """Whether no run begins any more."""
        return self._deadline is not None

    @property
    def running_count(self) -> int:
        """How many runs work."""
        return len(self._running)

    @property
    def log_bytes(self) -> int:
        """How large all logs are."""
        return sum(log.size_bytes for log in self._logs())

    @property
    def log_memory_bytes(self) -> int:
        """How much of them is in memory."""
        return sum(log.memory_bytes for log in self._logs())

    def get(self, run_id: str) -> ServerRun | None:
        """Return a run that works, or that ended and has its log still."""
        return self._running.get(run_id) or self._ended.get(run_id)

    def runs_of(self, owner: str) -> list[ServerRun]:
        """Return the runs of an owner, newest first: those that work, and those that ended and have their log still."""
        self._ended.sweep()
        known = [*self._ended.items(), *self._running.values()]
        return sorted((run for run in known if run.owner == owner), key=lambda run: run.id, reverse=True)

    def run_from(self, version_id: str) -> ServerRun | None:
        """Return the run that goes on from a version now."""
        return next((run for run in self._running.values() if run.base_id == version_id), None)

    def runs_in(self, conversation_id: str) -> list[ServerRun]:
        """Return the runs of a conversation that work now, oldest first."""
        return [run for run in self._running.values() if run.conversation_id == conversation_id]

    def start(
        self,
        version: AgentVersion[Any, Any],
        turn: Turn,
        *,
        owner: str,
        key_id: str | None = None,
        by: str | None = None,
        reason: str | None = None,
        branch: str | None = None,
        moves_head: bool = True,
        model_settings: ModelSettings | None = None,
        usage_limits: UsageLimits | None = None,
        session_id: str | None = None,
        renderings: Mapping[str, Rendering] | None = None,
    ) -> ServerRun:
        """Begin a run, and return it at once.

        What is wrong with the turn itself is told by the log: the run fails then before it begins.

        Args:
            version: The version that it goes on from.
            turn: What the user says, or answers to what the version waits for.
            owner: Whose conversation it is.
            key_id: The key that asks, for its limit.
            by: Who answers.
            reason: Why it was answered so.
            branch: A name for a branch that begins with this turn.
            moves_head: Whether the head of the conversation goes along, if it is at the version.
            model_settings: Settings of this turn.
            usage_limits: What the conversation may use.
            session_id: The caller's own id.
            renderings: What else is to be made of the run, by name; each has a log in `ServerRun.renderings`.

        Raises:
            RunRefusedError: The server stops, too many runs work, or one goes on from this version.
            ApprovalsPendingError: The version waits for a person, and the turn is a prompt.
        """
        self._check(version, key_id)
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
            stream = (
                version.advance_stream(
                    turn, branch=branch, usage_limits=usage_limits, cancellation_token=run.token, run_id=run.id,
                    moves_head=moves_head, **(model_settings or {}),
                )
                if not isinstance(turn, Mapping)
                else version.resume_stream(
                    turn, by=by, reason=reason, usage_limits=usage_limits, cancellation_token=run.token, run_id=run.id,
                    moves_head=moves_head,
                )
            )  # fmt: skip
        except BaseException:
            _forget(run)
            raise
        self._running[run.id] = run
        self.tasks.start_soon(self._work, run, version, stream, dict(renderings or {}), name=f'run {run.id}')
        return run

    def forget_logs(self) -> None:
        """Forget the runs that have ended, as happens with time: what they told is in the store."""
        self._ended.clear()

    def close(self) -> None:
        """Begin no more runs. Those that work have `shutdown_seconds` from now on to end by themselves."""
        if self._deadline is None:
            self._deadline = anyio.current_time() + self._settings.shutdown_seconds

    async def drain(self) -> None:
        """Begin no more runs, and wait until those that work have ended or have no time left."""
        self.close()
        with anyio.CancelScope(deadline=self._deadline or 0):
            await self._wait_for_all()

    async def stop(self) -> None:
        """Begin no more runs, and stop those that work. What they have done is kept, if that takes no longer than it may."""
        self.close()
        for run in list(self._running.values()):
            run.cancel()
        with anyio.move_on_after(CLEANUP_SECONDS):
            await self._wait_for_all()

    async def _wait_for_all(self) -> None:
        while self._running:
            await next(iter(self._running.values())).wait()

    def _check(self, version: AgentVersion[Any, Any], key_id: str | None) -> None:
        if self.is_closed:
            raise HubClosedError
        busy = self.run_from(version.id)
        if busy is not None:
            raise VersionBusyError(version.id, busy.id)
        self.check_room(key_id)

    def check_room(self, key_id: str | None) -> None:
        """Refuse one run more than may work at once, resumed ones included.

        Raises:
            TooManyRunsError: As many runs work, of the server or of the key.
        """
        keys = [*(run.key_id for run in self._running.values()), *self.resuming.values()]
        if len(keys) >= self._settings.max_runs:
            raise TooManyRunsError(len(keys), 'of this server')
        count = keys.count(key_id)
        if key_id is not None and count >= self._settings.max_runs_per_key:
            raise TooManyRunsError(count, 'of this key')

    async def _work(
        self,
        run: ServerRun,
        version: AgentVersion[Any, Any],
        stream: TurnStream[Any, Any],
        renderings: Mapping[str, Rendering],
    ) -> None:
        async with anyio.create_task_group() as group:  # renderings may end after the run
            feeds = [_Feed.begin(group, name, run, render) for name, render in renderings.items()]
            try:
                group.start_soon(_note_begun, run, stream)
                with session_scope(run.session_id):
                    await self._tell(run, version, stream, feeds)
            finally:
                stream.begun.set()
                del self._running[run.id]
                run.end()
                self._ended.put(run.id, run, (run.log, *run.renderings.values()))
                if self._metrics is not None and run.outcome is not None:
                    self._metrics.run_ended(run.agent_name, run.outcome, run.usage)

    async def _tell(
        self, run: ServerRun, version: AgentVersion[Any, Any], stream: TurnStream[Any, Any], feeds: list[_Feed]
    ) -> None:
        """Run, and append what happens to the log."""
        told = RunEvents(
            run_id=run.id,
            agent_name=run.agent_name,
            conversation_id=run.conversation_id,
            session_id=run.session_id,
            usage=lambda: stream.usage,
            usage_before=version.usage,
        )
        failure: BaseException | None = None
        ends: list[StreamEvent] = []
        try:
            for each in told.start():
                run.tell(each)
            async with stream:
                async for event in stream.events():
                    for each in told.translate(event):
                        run.tell(each)
                    for feed in feeds:
                        feed.push(event)
            ends = told.end(version_id=stream.version.id, status=stream.version.state)
        except BaseException as error:
            failure = error
            kept = None if stream.version_id == version.id else stream.version_id
            ends = told.fail(error, version_id=kept, is_suspended=stream.is_suspended)
            if not isinstance(error, Exception):  # the server stops, and does not wait any longer
                raise
            if not isinstance(error, FORESEEN):
                _LOGGER.exception('The run %s failed', run.id, exc_info=error)
        finally:
            conflict = stream.conflict
            moved = [] if conflict is None else [StatusEvent(kind='conflict', text=str(conflict))]
            run.usage = _used(stream.usage, version.usage)
            for each in [*moved, *ends]:
                run.tell(each)
            for feed in feeds:
                feed.end(failure)

    def _new_log(self) -> RunLog:
        return RunLog(memory_bytes=self._settings.log_memory_bytes)

    def _logs(self) -> list[RunLog]:
        working = [log for run in self._running.values() for log in (run.log, *run.renderings.values())]
        return [*working, *self._ended.logs]


class _Feed:
    """The events of a run for one rendering, which is made beside it: whatever becomes of that, the run goes on.

    What is not rendered yet waits in memory. A rendering only computes, so that is little.
    """

    def __init__(self) -> None:
        streams = anyio.create_memory_object_stream[Event](math.inf)
        self._sender: MemoryObjectSendStream[Event] = streams[0]
        self._receiver: MemoryObjectReceiveStream[Event] = streams[1]
        self._failure: BaseException | None = None

    @classmethod
    def begin(cls, group: TaskGroup, name: str, run: ServerRun, render: Rendering) -> _Feed:
        """Begin to render into the log of that name."""
        feed = cls()
        group.start_soon(feed._render, name, run, render)
        return feed

    def push(self, event: Event) -> None:
        """Hand over an event."""
        with suppress(anyio.BrokenResourceError):  # the rendering has failed
            self._sender.send_nowait(event)

    def end(self, failure: BaseException | None) -> None:
        """Let no more come: the run has ended, by an error if one is given."""
        self._failure = failure
        self._sender.close()

    async def _render(self, name: str, run: ServerRun, render: Rendering) -> None:
        log = run.renderings[name]
        try:
            async for chunk in render(self._events()):
                log.append(chunk)
        except Exception:  # the outermost edge: a rendering is somebody else's code, and no part of the run
            if self._failure is None:
                _LOGGER.exception('The rendering %r of the run %s failed', name, run.id)
        finally:
            self._receiver.close()
            log.close()

    async def _events(self) -> AsyncGenerator[Event]:
        async for event in self._receiver:
            yield event
        if self._failure is not None:
            raise self._failure


async def _note_begun(run: ServerRun, stream: TurnStream[Any, Any]) -> None:
    await stream.begun.wait()
    run.begin()


def _used(usage: RunUsage | None, before: RunUsage) -> RunUsage:
    """Return what a run has used by itself of what its conversation has."""
    if usage is None:
        return RunUsage()
    names = ('requests', 'tool_calls', 'input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens')
    return RunUsage(**{name: getattr(usage, name) - getattr(before, name) for name in names})


def _forget(run: ServerRun) -> None:
    for log in (run.log, *run.renderings.values()):
        log.forget()
