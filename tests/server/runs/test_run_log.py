"""A log of a run: any number of readers, each at its own pace, and nobody waits for anybody."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator

import anyio
import pytest

from pydantic_deep.server.runs._run_log import BATCH_BYTES, LogDiscardedError, RunLog

pytestmark = pytest.mark.anyio


@pytest.fixture
def make_log() -> Generator[Callable[..., RunLog]]:
    logs: list[RunLog] = []

    def make(**options: int) -> RunLog:
        logs.append(RunLog(**options))
        return logs[-1]

    yield make
    for log in logs:
        log.discard()


async def read_all(log: RunLog, after: int = 0) -> list[tuple[int, bytes]]:
    return [numbered async for numbered in log.tail(after)]


async def test_entries_are_numbered_from_one_and_read_as_they_were_written(make_log: Callable[..., RunLog]):
    log = make_log()

    assert [log.append(entry) for entry in (b'a', b'', b'ccc')] == [1, 2, 3]
    log.close()

    assert await read_all(log) == [(1, b'a'), (2, b''), (3, b'ccc')]
    assert await read_all(log, 2) == [(3, b'ccc')]
    assert await read_all(log, 3) == []
    assert len(log) == 3


async def test_readers_get_what_comes_and_end_when_the_log_is_closed(make_log: Callable[..., RunLog]):
    """004-12"""
    log = make_log()
    heard: dict[int, list[tuple[int, bytes]]] = {}

    async def listen(after: int) -> None:
        heard[after] = await read_all(log, after)

    async with anyio.create_task_group() as group:
        for after in range(4):
            group.start_soon(listen, after)
        for entry in (b'1', b'2', b'3', b'4'):
            await anyio.wait_all_tasks_blocked()
            log.append(entry)
        await anyio.wait_all_tasks_blocked()
        assert heard == {}
        log.close()

    whole = [(1, b'1'), (2, b'2'), (3, b'3'), (4, b'4')]
    assert heard == {after: whole[after:] for after in range(4)}


async def test_a_reader_that_stops_holds_neither_the_writer_nor_others(make_log: Callable[..., RunLog]):
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


async def test_a_log_that_grows_is_in_a_file_and_reads_the_same(make_log: Callable[..., RunLog]):
    """004-30"""
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


async def test_batches_are_as_large_as_one_write_and_hold_one_entry_at_least(make_log: Callable[..., RunLog]):
    log = make_log()
    for size in (10, BATCH_BYTES - 10, 1, 2 * BATCH_BYTES, 1):
        log.append(b'x' * size)
    log.close()

    assert [[number for number, _ in batch] async for batch in log.batches()] == [[1, 2], [3], [4], [5]]


async def test_silence_is_told(make_log: Callable[..., RunLog]):
    log = make_log()
    log.append(b'1')
    batches = log.batches(idle_seconds=0)

    assert await anext(batches) == [(1, b'1')]
    assert await anext(batches) == []
    log.append(b'2')
    assert await anext(batches) == [(2, b'2')]
    log.close()
    assert [batch async for batch in batches] == []


async def test_a_closed_log_takes_nothing(make_log: Callable[..., RunLog]):
    log = make_log()
    log.close()

    assert log.is_closed
    with pytest.raises(RuntimeError, match='closed'):
        log.append(b'late')


async def test_a_forgotten_log_tells_its_readers_and_takes_no_memory(make_log: Callable[..., RunLog]):
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


async def test_epochs_tell_logs_apart(make_log: Callable[..., RunLog]):
    assert len({make_log().epoch for _ in range(100)}) == 100
