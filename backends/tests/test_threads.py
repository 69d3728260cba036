"""Threads of cancelled callers: no work continues after the cancellation."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from pydantic_deep_backends import LocalBackend
from pydantic_deep_backends._threads import (
    _Work,  # pyright: ignore[reportPrivateUsage]
    check_cancelled,
    run_to_completion,
)

pytestmark = pytest.mark.anyio


async def test_asyncio_cancellation_waits_for_the_thread() -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        begun.set()
        go_on.wait()
        done.append('written')

    task = asyncio.create_task(run_to_completion(work))
    await anyio.to_thread.run_sync(begun.wait)
    task.cancel()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ['written']


async def test_cancelled_work_in_the_queue_never_starts() -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def busy() -> None:
        begun.set()
        go_on.wait()

    limiter = anyio.to_thread.current_default_thread_limiter()
    before, limiter.total_tokens = limiter.total_tokens, 1
    first = asyncio.create_task(run_to_completion(busy))
    await asyncio.sleep(0)
    second = asyncio.create_task(run_to_completion(lambda: done.append('late')))
    await anyio.to_thread.run_sync(begun.wait, limiter=anyio.CapacityLimiter(1))
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    limiter.total_tokens = before
    go_on.set()
    await first
    assert done == []


def test_work_cancelled_between_queue_and_thread_does_nothing() -> None:
    done: list[str] = []
    work = _Work(lambda: done.append('late'))
    assert not work.is_under_way()
    assert work.run() is None
    assert done == []


async def test_long_read_ends_at_its_next_checkpoint() -> None:
    begun = threading.Event()
    rounds: list[int] = []

    def search() -> None:
        while True:
            check_cancelled()
            rounds.append(1)
            begun.set()

    task = asyncio.create_task(run_to_completion(search))
    await anyio.to_thread.run_sync(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    seen = len(rounds)
    await asyncio.sleep(0)
    assert len(rounds) == seen


async def test_error_of_the_function_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_to_completion(lambda: 1 / 0)


async def test_cancelled_write_has_ended_when_the_caller_resumes(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    old, new = b'o' * 3_000_000, b'n' * 3_000_000
    (tmp_path / 'f').write_bytes(old)
    for rounds in range(40):
        task = asyncio.create_task(backend.write_bytes('/f', new if rounds % 2 else old))
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        first = sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir())
        assert [name for name, _ in first] == ['f']
        await asyncio.sleep(0)
        assert sorted((path.name, path.stat().st_mtime_ns) for path in tmp_path.iterdir()) == first
