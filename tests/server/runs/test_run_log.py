"""Run logs: any number of readers, each at its own pace, without blocking."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator

import anyio
import pytest

from pydantic_deep.server.runs._run_log import BATCH_BYTES, MEMORY_BYTES, LogDiscardedError, RunLog

pytestmark = pytest.mark.anyio


@pytest.fixture
def make_log() -> Generator[Callable[..., RunLog]]:
    logs: list[RunLog] = []

    def make(*, memory_bytes: int = MEMORY_BYTES) -> RunLog:
        logs.append(RunLog(memory_bytes=memory_bytes))
        return logs[-1]

    yield make
    for log in logs:
        log.discard()


async def read_all(log: RunLog, after: int = 0) -> list[tuple[int, bytes]]:
    return [numbered async for numbered in log.tail(after)]


async def test_entries_are_numbered_from_one(make_log: Callable[..., RunLog]):
    log = make_log()

    assert [log.append(entry) for entry in (b'a', b'', b'ccc')] == [1, 2, 3]
    log.close()

    assert await read_all(log) == [(1, b'a'), (2, b''), (3, b'ccc')]
    assert await read_all(log, 2) == [(3, b'ccc')]
    assert await read_all(log, 3) == []
    assert len(log) == 3


async def test_readers_receive_new_entries_until_the_log_is_closed(make_log: Callable[..., RunLog]):
    """004-12: SSE streaming with tool calls, auditing, multi-model schemes, as one experience."""
    log = make_log()
    received: dict[int, list[tuple[int, bytes]]] = {}

    async def listen(after: int) -> None:
        received[after] = await read_all(log, after)

    async with anyio.create_task_group() as group:
        for after in range(4):
            group.start_soon(listen, after)
        for entry in (b'1', b'2', b'3', b'4'):
            await anyio.wait_all_tasks_blocked()
            log.append(entry)
        await anyio.wait_all_tasks_blocked()
        assert received == {}
        log.close()

    whole = [(1, b'1'), (2, b'2'), (3, b'3'), (4, b'4')]
    assert received == {after: whole[after:] for after in range(4)}


async def test_stalled_reader_blocks_neither_writer_nor_readers(make_log: Callable[..., RunLog]):
    log = make_log()
    log.append(b'first')
    stalled = log.tail()
    assert await anext(stalled) == (1, b'first')

    for _ in range(10_000):
        log.append(b'x' * 100)
    log.close()

    assert len(await read_all(log)) == 10_001
    assert await anext(stalled) == (2, b'x' * 100)
    await stalled.aclose()


async def test_large_log_is_moved_to_disk(make_log: Callable[..., RunLog]):
    """004-30: Bounded or windowed buffer, or spill to disk, for very large responses."""
    log = make_log(memory_bytes=1000)
    chance = random.Random(1)
    entries = [chance.randbytes(chance.randrange(200)) for _ in range(500)]
    small = make_log(memory_bytes=1000)
    small.append(b'x' * 1000)

    for entry in entries:
        log.append(entry)
    log.close()

    assert await read_all(log) == [(number, entry) for number, entry in enumerate(entries, 1)]
    assert (small.is_on_disk, log.is_on_disk) == (False, True)
    assert (small.memory_bytes, small.size_bytes) == (1008, 1008)
    assert (log.memory_bytes, log.size_bytes) == (8 * 500, sum(map(len, entries)) + 8 * 500)


async def test_batches_are_limited_in_size_but_have_at_least_one_entry(make_log: Callable[..., RunLog]):
    log = make_log()
    for size in (10, BATCH_BYTES - 10, 1, 2 * BATCH_BYTES, 1):
        log.append(b'x' * size)
    log.close()

    assert [[number for number, _ in batch] async for batch in log.batches()] == [[1, 2], [3], [4], [5]]


async def test_idle_log_yields_empty_batches(make_log: Callable[..., RunLog]):
    log = make_log()
    log.append(b'1')
    batches = log.batches(idle_seconds=0)

    assert await anext(batches) == [(1, b'1')]
    assert await anext(batches) == []
    log.append(b'2')
    assert await anext(batches) == [(2, b'2')]
    log.close()
    assert [batch async for batch in batches] == []


async def test_closed_log_refuses_entries(make_log: Callable[..., RunLog]):
    log = make_log()
    log.close()

    assert log.is_closed
    with pytest.raises(RuntimeError, match='closed'):
        log.append(b'late')


async def test_discarded_log_raises_in_readers_and_frees_memory(make_log: Callable[..., RunLog]):
    log = make_log(memory_bytes=10)
    for _ in range(3):
        log.append(b'x' * BATCH_BYTES)
    reader = log.tail()
    await anext(reader)
    assert log.is_on_disk

    log.discard()

    with pytest.raises(LogDiscardedError):
        await anext(reader)
    assert (log.is_on_disk, log.size_bytes, log.memory_bytes) == (False, 24, 24)


async def test_epochs_are_unique(make_log: Callable[..., RunLog]):
    assert len({make_log().epoch for _ in range(100)}) == 100
