"""Events reach the log of their claim in order and once, whatever the store does."""

# Private names are used because the writer has no public state.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from pydantic_deep.dispatch import _log_writer
from pydantic_deep.dispatch._log_writer import LogWriter
from pydantic_deep.store import QueuedRunRecord, StoreClosedError, StoreUnavailableError
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.streaming import StreamEvent, TextEvent
from tests.dispatch.conftest import Store, answers, ask, begin, events_of, process, until
from tests.versions.recovery.crashes import World

pytestmark = pytest.mark.anyio

EVENTS: list[StreamEvent] = [TextEvent(text=str(number)) for number in range(6)]


async def claim(store: Store) -> QueuedRunRecord:
    run = await ask(await begin(World(store.url, answers()), store), store, 'a')
    claimed = await store.queue.claim(run.run_id)
    assert claimed is not None
    return claimed


def fail_appends(store: Store, *errors: Exception | None, is_written: bool = False) -> list[int]:
    """Let appends raise these errors, one each, before or after they are written; return the sizes of all appends."""
    append, rest, sizes = store.queue.append, iter(errors), list[int]()

    async def fail(run: QueuedRunRecord, after: int, entries: Sequence[bytes]) -> bool:
        sizes.append(len(entries))
        error = next(rest, None)
        if error is None or is_written:
            done = await append(run, after, entries)
            if error is None:
                return done
        raise error

    store.queue.append = fail
    return sizes


async def write(store: Store, run: QueuedRunRecord, *between: Callable[[], Any]) -> None:
    """Emit half of the events, wait for conditions, and emit the rest."""
    writer = LogWriter(store.queue, run)
    async with writer.open():
        for event in EVENTS[:3]:
            writer.emit(event)
        for condition in between:
            await until(condition)
        for event in EVENTS[3:]:
            writer.emit(event)


async def test_events_that_occur_together_are_written_together(url: str) -> None:
    async with process(url) as store:
        run = await claim(store)
        sizes = fail_appends(store)
        await write(store, run, lambda: sizes == [3])
        assert (sizes, await events_of(store.queue, run)) == ([3, 3], EVENTS)


async def test_unavailable_store_is_waited_for_while_the_run_goes_on(url: str) -> None:
    async with process(url) as store:
        run = await claim(store)
        sizes = fail_appends(store, *[StoreUnavailableError('away')] * 3)
        await write(store, run, lambda: len(sizes) == 4)
        assert await events_of(store.queue, run) == EVENTS


async def test_write_whose_result_was_lost_is_not_repeated(url: str) -> None:
    """More events have been emitted since; only these are written."""
    async with process(url) as store:
        run = await claim(store)
        sizes = fail_appends(store, StoreUnavailableError('away'), is_written=True)
        await write(store, run, lambda: len(sizes) == 1)
        assert await events_of(store.queue, run) == EVENTS


@pytest.mark.parametrize('error', [StoreUnavailableError('away'), StoreClosedError('closed')])
async def test_last_events_are_lost_if_the_store_fails_at_the_end(
    url: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with process(url) as store:
        run = await claim(store)
        fail_appends(store, *[error] * 9)
        await write(store, run)
        assert await events_of(store.queue, run) == []
    assert 'could not be written' in caplog.text


async def test_writer_stops_when_another_worker_has_claimed_the_run(url: str) -> None:
    async with process(url) as store, process(url) as other:
        run = await claim(store)
        await store.queue.release(run.run_id)
        again = await other.queue.claim(run.run_id)
        assert again is not None
        sizes = fail_appends(store)
        writer = LogWriter(store.queue, run)
        async with writer.open():
            writer.emit(EVENTS[0])
            await until(lambda: writer._is_over)
            writer.emit(EVENTS[1])
        assert (sizes, writer._pending, await events_of(store.queue, run)) == ([1], [], [])


async def test_error_of_the_run_is_raised_as_it_is_after_its_events_are_written(url: str) -> None:
    async with process(url) as store:
        run = await claim(store)
        writer = LogWriter(store.queue, run)

        async def fail() -> None:
            async with writer.open():
                writer.emit(EVENTS[0])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await events_of(store.queue, run) == EVENTS[:1]


async def test_events_of_a_cancelled_run_are_written(url: str) -> None:
    async with process(url) as store:
        run = await claim(store)
        writer = LogWriter(store.queue, run)
        with anyio.CancelScope() as scope:
            async with writer.open():
                writer.emit(EVENTS[0])
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert await events_of(store.queue, run) == EVENTS[:1]


async def write_around_a_crash(store: Store, run: QueuedRunRecord) -> None:
    """Emit events; the store loses all but the first two after it has acknowledged three."""
    writer = LogWriter(store.queue, run)
    sizes = fail_appends(store)

    def lose() -> Operation[None]:
        yield Statement('DELETE FROM run_event WHERE last > 2')
        yield Statement('UPDATE queued_run SET position = 2')

    async with writer.open():
        for count, event in enumerate(EVENTS[:4], 1):
            writer.emit(event)
            await until(lambda count=count: writer._written == count)
        await store._engine.write(lose)
        for event in EVENTS[4:]:
            writer.emit(event)
    assert sizes[:4] == [1] * 4


async def test_entries_that_a_crashed_store_has_lost_are_written_again(url: str) -> None:
    """PostgreSQL acknowledges entries before they are on disk. Others may have read them, so they keep their numbers."""
    async with process(url) as store:
        run = await claim(store)
        await write_around_a_crash(store, run)
        assert await events_of(store.queue, run) == EVENTS


async def test_log_ends_if_lost_entries_are_not_kept_any_more(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients get the events of the stored messages instead."""
    monkeypatch.setattr(_log_writer, 'KEEP_SECONDS', 0)
    async with process(url) as store:
        run = await claim(store)
        await write_around_a_crash(store, run)
        assert await events_of(store.queue, run) == EVENTS[:2]
    assert f'has lost 2 events of the run {run.run_id}' in caplog.text
