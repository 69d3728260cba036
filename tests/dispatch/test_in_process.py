"""The dispatcher without an engine delivers runs to the workers of its process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

import anyio
import pytest

from pydantic_deep.dispatch import DispatcherHealth, InProcessDispatcher
from tests.dispatch.conftest import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def working(
    dispatcher: InProcessDispatcher,
    execute: Callable[[str], Awaitable[None]],
    names: Collection[str] = ('a',),
    concurrency: int = 1,
) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:

        async def work() -> None:
            await dispatcher.work(execute, agent_names=names, concurrency=concurrency)

        group.start_soon(work)
        yield
        group.cancel_scope.cancel()


async def submit(dispatcher: InProcessDispatcher, *run_ids: str, agent_name: str = 'a', priority: int = 0) -> None:
    for run_id in run_ids:
        await dispatcher.submit(run_id, agent_name=agent_name, conversation_id='c', priority=priority)


async def test_runs_are_delivered_once_by_priority_then_in_order() -> None:
    dispatcher, seen = InProcessDispatcher(), list[str]()

    async def execute(run_id: str) -> None:
        seen.append(run_id)

    await submit(dispatcher, '1', '2', '1', 'cancelled')
    await submit(dispatcher, 'urgent', priority=1)
    await dispatcher.cancel('cancelled', conversation_id='c')
    await dispatcher.cancel('unknown', conversation_id='c')
    async with working(dispatcher, execute):
        await until(lambda: len(seen) == 3)
        await submit(dispatcher, '3')
        await until(lambda: len(seen) == 4)
    assert seen == ['urgent', '1', '2', '3']


async def test_runs_at_the_same_time_are_limited_and_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher, running, most = InProcessDispatcher(), set[str](), list[int]()
    may_end = anyio.Event()

    async def execute(run_id: str) -> None:
        running.add(run_id)
        most.append(len(running))
        await may_end.wait()
        running.remove(run_id)
        if run_id == '1':
            raise ValueError('It cannot be executed.')

    await submit(dispatcher, *'12345')
    async with working(dispatcher, execute, concurrency=2):
        await until(lambda: len(running) == 2)
        may_end.set()
        await until(lambda: len(most) == 5)
    assert max(most) == 2
    assert 'The run 1 could not be executed' in caplog.text


async def test_each_of_several_workers_receives_the_runs_of_its_agents() -> None:
    """Workers that wait at the same time are all woken."""
    dispatcher, seen = InProcessDispatcher(), list[tuple[str, str]]()

    async def execute_a(run_id: str) -> None:
        seen.append(('a', run_id))

    async def execute_b(run_id: str) -> None:
        seen.append(('b', run_id))

    async with working(dispatcher, execute_a, ['a']), working(dispatcher, execute_b, ['b']):
        await anyio.wait_all_tasks_blocked()
        await submit(dispatcher, '1', agent_name='a')
        await submit(dispatcher, '2', agent_name='b')
        await submit(dispatcher, '3', agent_name='c')
        await until(lambda: len(seen) == 2)
    assert sorted(seen) == [('a', '1'), ('b', '2')]


async def test_runs_that_nobody_takes_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has them nevertheless."""
    monkeypatch.setattr('pydantic_deep.dispatch.in_process._MAX_WAITING', 2)
    dispatcher, seen = InProcessDispatcher(), list[str]()

    async def execute(run_id: str) -> None:
        seen.append(run_id)

    await submit(dispatcher, '1', '2', '3')
    async with working(dispatcher, execute):
        await until(lambda: len(seen) == 2)
        await anyio.wait_all_tasks_blocked()
    await submit(dispatcher, '4')
    await dispatcher.aclose()
    await dispatcher.aclose()
    async with working(dispatcher, execute):
        await anyio.wait_all_tasks_blocked()
    assert seen == ['2', '3']


async def test_it_is_always_up() -> None:
    assert await InProcessDispatcher().health() == DispatcherHealth(
        is_up=True, detail='Runs are executed in this process.'
    )
