"""`run_to_completion`: work completes even if its task is cancelled."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from pydantic_deep._run_to_completion import run_to_completion

pytestmark = pytest.mark.anyio


class Work:
    """Work in two steps. The second starts when `go` is set."""

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


async def test_result_of_the_work_is_returned() -> None:
    work = Work()
    work.go.set()
    assert await run_to_completion(work.run()) == 'result'


async def test_work_completes_despite_repeated_cancellation() -> None:
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


async def test_cancelled_scope_waits_for_the_work() -> None:
    work = Work()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_to_completion, work.run())
        await work.begun.wait()
        tasks.cancel_scope.cancel()
        work.go.set()
    assert work.done == ['begun', 'ended']


async def test_error_of_the_work_precedes_the_cancellation() -> None:
    work = Work()
    task = asyncio.create_task(run_to_completion(work.fail()))
    await asyncio.sleep(0)
    task.cancel()
    work.go.set()
    with pytest.raises(OSError, match='the disk is full'):
        await task
