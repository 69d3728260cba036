"""The rules for dispatchers, and the fake `execute` with which they are tested."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import ClassVar, Protocol, TypeAlias

import anyio
import pytest

from pydantic_deep.dispatch._protocol import Dispatcher, ExecuteRun
from pydantic_deep.dispatch.errors import DispatcherUnavailableError

OpenDispatcher: TypeAlias = Callable[[], Awaitable[Dispatcher]]
"""Opens a dispatcher; every call uses the same engine."""

_PATIENCE_SECONDS = 60
"""Maximum duration of a step. A test that waits this long fails."""


class EngineSwitch(Protocol):
    """Stops and starts the engine of a test."""

    async def stop(self) -> None:
        """Stop the engine."""
        ...

    async def start(self) -> None:
        """Start the engine again, with the runs that it had."""
        ...


class FakeExecution:
    """An `ExecuteRun` that records its calls. Each lasts until `finish` is called, or ends with an error.

    Args:
        finished: Whether calls end at once.
        failing: The runs whose first call raises an error.
    """

    def __init__(self, *, finished: bool = True, failing: Collection[str] = ()) -> None:
        self.started: list[str] = []
        """The runs that were started, in order."""
        self.running: set[str] = set()
        """The runs that are running."""
        self.max_running: int = 0
        """The largest number of runs that were running at the same time."""
        self.ended: list[str] = []
        """The runs that ended without an error and were not cancelled."""
        self._failing = set(failing)
        self._finish = anyio.Event()
        self._changed = anyio.Event()
        if finished:
            self.finish()

    async def __call__(self, run_id: str) -> None:
        """Run until `finish` is called."""
        self.started.append(run_id)
        self.running.add(run_id)
        self.max_running = max(self.max_running, len(self.running))
        self._notify()
        try:
            if run_id in self._failing:
                self._failing.remove(run_id)
                raise ValueError(f'the run {run_id} cannot be executed')
            await self._finish.wait()
            self.ended.append(run_id)
        finally:
            self.running.discard(run_id)
            self._notify()

    def finish(self) -> None:
        """End all runs, and later ones at once."""
        self._finish.set()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the fields of this object is true."""
        with anyio.fail_after(_PATIENCE_SECONDS):
            while not condition():
                self._changed = anyio.Event()
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()


@asynccontextmanager
async def _worker(
    dispatcher: Dispatcher, execute: ExecuteRun, *, agent_name: str = 'analyst', concurrency: int = 4
) -> AsyncGenerator[None]:
    """Work in the background, until the end of the block."""
    async with anyio.create_task_group() as group:

        async def work() -> None:
            await dispatcher.work(execute, agent_names=[agent_name], concurrency=concurrency)

        group.start_soon(work)
        yield
        group.cancel_scope.cancel()


async def _submit(dispatcher: Dispatcher, *run_ids: str, agent_name: str = 'analyst') -> None:
    """Submit runs, each of a conversation of its own."""
    for run_id in run_ids:
        await dispatcher.submit(run_id, agent_name=agent_name, conversation_id=f'conversation-of-{run_id}')


class DispatcherSuite:
    """The rules for every dispatcher."""

    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [pytest.mark.anyio]

    is_durable: ClassVar[bool] = True
    """Whether the engine delivers a run again if its worker was stopped or could not execute it."""

    has_priorities: ClassVar[bool] = True
    """Whether waiting runs with a higher priority are delivered first."""

    @pytest.fixture
    def switch(self) -> EngineSwitch | None:
        """Stops and starts the engine. Without one, the rules about engines that are down are skipped."""
        return None

    @pytest.fixture
    async def dispatcher(self, open_dispatcher: OpenDispatcher) -> Dispatcher:
        """A dispatcher."""
        return await open_dispatcher()

    async def test_run_is_executed_once_by_a_worker_that_starts_later(self, dispatcher: Dispatcher) -> None:
        execution = FakeExecution()
        await _submit(dispatcher, 'a')
        async with _worker(dispatcher, execution):
            await execution.wait_until(lambda: execution.ended == ['a'])
            await _submit(dispatcher, 'b')
            await execution.wait_until(lambda: execution.ended == ['a', 'b'])
        assert execution.started == ['a', 'b']

    async def test_run_is_executed_by_a_worker_of_another_dispatcher(self, open_dispatcher: OpenDispatcher) -> None:
        if not self.is_durable:
            pytest.skip('Its runs are visible only to itself.')
        execution = FakeExecution()
        async with _worker(await open_dispatcher(), execution):
            await _submit(await open_dispatcher(), 'a')
            await execution.wait_until(lambda: execution.ended == ['a'])

    async def test_run_that_is_submitted_twice_is_delivered_once(self, dispatcher: Dispatcher) -> None:
        execution = FakeExecution()
        await _submit(dispatcher, 'a', 'a', 'b')
        async with _worker(dispatcher, execution, concurrency=1):
            await execution.wait_until(lambda: len(execution.ended) == 2)
            await _submit(dispatcher, 'c')
            await execution.wait_until(lambda: len(execution.ended) == 3)
        assert sorted(execution.started) == ['a', 'b', 'c']

    @pytest.mark.parametrize('concurrency', [1, 3])
    async def test_worker_executes_as_many_runs_at_the_same_time_as_allowed(
        self, dispatcher: Dispatcher, concurrency: int
    ) -> None:
        execution = FakeExecution(finished=False)
        await _submit(dispatcher, *'abcde')
        async with _worker(dispatcher, execution, concurrency=concurrency):
            await execution.wait_until(lambda: len(execution.running) == concurrency)
            execution.finish()
            await execution.wait_until(lambda: len(execution.ended) == 5)
        assert sorted(execution.started) == [*'abcde']
        assert execution.max_running == concurrency

    async def test_runs_with_a_higher_priority_are_delivered_first(self, dispatcher: Dispatcher) -> None:
        if not self.has_priorities:
            pytest.skip('It has no priorities.')
        for run_id, priority in (('low', -1), ('normal', 0), ('high', 1)):
            await dispatcher.submit(run_id, agent_name='analyst', conversation_id=run_id, priority=priority)
        execution = FakeExecution()
        async with _worker(dispatcher, execution, concurrency=1):
            await execution.wait_until(lambda: len(execution.ended) == 3)
        assert execution.started == ['high', 'normal', 'low']

    async def test_runs_of_other_agents_are_left_for_their_workers(self, dispatcher: Dispatcher) -> None:
        await _submit(dispatcher, 'of-a-writer', agent_name='writer')
        await _submit(dispatcher, 'of-an-analyst')
        analyst, writer = FakeExecution(), FakeExecution()
        async with _worker(dispatcher, analyst):
            await analyst.wait_until(lambda: analyst.ended == ['of-an-analyst'])
        async with _worker(dispatcher, writer, agent_name='writer'):
            await writer.wait_until(lambda: writer.ended == ['of-a-writer'])
        assert (analyst.started, writer.started) == (['of-an-analyst'], ['of-a-writer'])

    async def test_run_that_cannot_be_executed_does_not_stop_others(
        self, dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
    ) -> None:
        execution = FakeExecution(failing=['bad'])
        await _submit(dispatcher, 'bad')
        async with _worker(dispatcher, execution, concurrency=1):
            await execution.wait_until(lambda: execution.started == ['bad'] and not execution.running)
            await _submit(dispatcher, 'good')
            await execution.wait_until(lambda: 'good' in execution.ended)
            if self.is_durable:
                await execution.wait_until(lambda: 'bad' in execution.ended)
        assert 'The run bad could not be executed' in caplog.text

    async def test_cancelled_run_is_not_delivered(self, dispatcher: Dispatcher) -> None:
        await _submit(dispatcher, 'a', 'b')
        for run_id in ('a', 'unknown'):
            await dispatcher.cancel(run_id, conversation_id=f'conversation-of-{run_id}')
        execution = FakeExecution()
        async with _worker(dispatcher, execution, concurrency=1):
            await _submit(dispatcher, 'c')
            await execution.wait_until(lambda: len(execution.ended) == 2)
        assert sorted(execution.started) == ['b', 'c']

    async def test_cancellation_does_not_interrupt_a_delivered_run(self, dispatcher: Dispatcher) -> None:
        """The worker reads the request to cancel in the store, and ends the run itself."""
        execution = FakeExecution(finished=False)
        await _submit(dispatcher, 'a')
        async with _worker(dispatcher, execution):
            await execution.wait_until(lambda: execution.running == {'a'})
            await dispatcher.cancel('a', conversation_id='conversation-of-a')
            await _submit(dispatcher, 'b')
            await execution.wait_until(lambda: execution.running == {'a', 'b'})
            execution.finish()
            await execution.wait_until(lambda: sorted(execution.ended) == ['a', 'b'])
        assert execution.started == ['a', 'b']

    async def test_run_of_a_stopped_worker_is_delivered_to_another(self, open_dispatcher: OpenDispatcher) -> None:
        if not self.is_durable:
            pytest.skip('A run that was delivered is found in the store.')
        stopped, other = FakeExecution(finished=False), FakeExecution()
        first, second = await open_dispatcher(), await open_dispatcher()
        await _submit(first, 'a')
        async with _worker(first, stopped):
            await stopped.wait_until(lambda: stopped.running == {'a'})
        assert (stopped.running, stopped.ended) == (set(), [])
        async with _worker(second, other):
            await other.wait_until(lambda: other.ended == ['a'])

    async def test_engine_that_is_down_is_reported_and_waited_for(
        self, dispatcher: Dispatcher, switch: EngineSwitch | None
    ) -> None:
        if switch is None:
            pytest.skip('The engine of this test cannot be stopped.')
        execution = FakeExecution(finished=False)
        await _submit(dispatcher, 'a')
        async with _worker(dispatcher, execution):
            await execution.wait_until(lambda: execution.running == {'a'})
            await switch.stop()
            with pytest.raises(DispatcherUnavailableError, match=r'is unavailable: .* stay queued in the store'):
                await _submit(dispatcher, 'b')
            with pytest.raises(DispatcherUnavailableError):
                await dispatcher.cancel('a', conversation_id='conversation-of-a')
            health = await dispatcher.health()
            assert (health.is_up, 'is unavailable' in health.detail) == (False, True)
            assert execution.running == {'a'}
            later = FakeExecution()
            async with _worker(dispatcher, later, agent_name='writer'):
                await switch.start()
                with anyio.fail_after(_PATIENCE_SECONDS):
                    while not (await dispatcher.health()).is_up:  # noqa: ASYNC110 - nothing reports that it is up
                        await anyio.sleep(0.1)  # pragma: no cover - it may be up at once
                await _submit(dispatcher, 'b')
                await _submit(dispatcher, 'c', agent_name='writer')
                await execution.wait_until(lambda: execution.running == {'a', 'b'})
                await later.wait_until(lambda: later.ended == ['c'])
            execution.finish()
            await execution.wait_until(lambda: {'a', 'b'} <= {*execution.ended})

    async def test_health_names_the_engine(self, dispatcher: Dispatcher) -> None:
        health = await dispatcher.health()
        assert health.is_up
        assert health.detail.endswith('.')

    async def test_closing_twice_does_nothing(self, dispatcher: Dispatcher) -> None:
        await dispatcher.aclose()
        await dispatcher.aclose()
