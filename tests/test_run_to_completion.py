"""What must be done is done, in a task that is cancelled too."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from pydantic_deep._run_to_completion import run_to_completion

pytestmark = pytest.mark.anyio


class Work:
    """Does two things, the second when it is told to."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.done: list[str] = []

    async def run(self) -> str:
        self.done.append('begun')
        self.begun.set()
        await self.go.wait()
        self.done.append('ended')
        return 'result'

    async def fail(self) -> None:
        await self.go.wait()
        raise OSError('the disk is full')


async def test_what_the_work_returns_is_returned() -> None:
    work = Work()
    work.go.set()
    assert await run_to_completion(work.run()) == 'result'


async def test_work_goes_on_however_often_its_task_is_cancelled_and_then_the_task_is() -> None:
    work = Work()
    task = asyncio.create_task(run_to_completion(work.run()))
    await work.begun.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    work.go.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert work.done == ['begun', 'ended']


async def test_a_scope_that_is_cancelled_waits_too() -> None:
    work = Work()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_to_completion, work.run())
        await work.begun.wait()
        tasks.cancel_scope.cancel()
        work.go.set()
    assert work.done == ['begun', 'ended']


async def test_what_has_gone_wrong_is_raised_and_not_that_the_task_was_cancelled() -> None:
    work = Work()
    task = asyncio.create_task(run_to_completion(work.fail()))
    await asyncio.sleep(0)
    task.cancel()
    work.go.set()
    with pytest.raises(OSError, match='the disk is full'):
        await task
