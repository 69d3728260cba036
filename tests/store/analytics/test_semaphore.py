"""Queries of one replica run in order of arrival, with a limit on concurrent ones."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from pydantic_deep.store.analytics._semaphore import FairSemaphore

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_slots_are_granted_in_order_and_skip_cancelled_tasks() -> None:
    slots, seen = FairSemaphore(), list[int]()

    async def work(number: int) -> None:
        async with slots.slot(1):
            seen.append(number)

    async with slots.slot(1):
        tasks = [asyncio.create_task(work(number)) for number in range(4)]
        await anyio.lowlevel.checkpoint()
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
    await asyncio.wait(tasks)
    assert seen == [0, 2, 3]


@pytest.mark.parametrize('moments', range(5))
async def test_slot_granted_to_a_cancelled_task_passes_to_the_next(moments: int) -> None:
    """A task may be cancelled just before or after its slot is granted. No query runs for a disconnected client."""
    slots = FairSemaphore()
    first = slots.slot(1)
    await first.__aenter__()

    async def work() -> None:
        async with slots.slot(1, 60):
            await asyncio.Event().wait()

    second = asyncio.create_task(work())
    await anyio.lowlevel.checkpoint()
    await first.__aexit__(None, None, None)  # the slot is granted, and the task has not been resumed yet
    for _ in range(moments):
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second], timeout=20)
    assert second.cancelled()
    async with slots.slot(1, 1):
        pass
