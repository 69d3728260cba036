"""The logs of ended runs are cached, with limits of age, size and number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pydantic_deep.server.runs._log_cache import MAX_FILES, LogCache
from pydantic_deep.server.runs._run_log import RunLog
from pydantic_deep.testing import FakeClock

pytestmark = pytest.mark.anyio


def make_cache(clock: FakeClock, **limits: Any) -> LogCache[str]:
    options: Mapping[str, Any] = {'retention_seconds': 60, 'max_bytes': 1000, **limits}
    return LogCache(clock=clock.monotonic, **options)


def log_of(size: int, **options: Any) -> RunLog:
    log = RunLog(**options)
    log.append(b'x' * (size - 8))
    log.close()
    return log


def logs_of(size: int, **options: Any) -> Callable[[], list[RunLog]]:
    log = log_of(size, **options)
    return lambda: [log]


async def test_logs_are_cached_until_their_retention_ends():
    clock = FakeClock()
    cache = make_cache(clock)
    log = log_of(10)

    cache.put('a', 'A', lambda: [log])
    assert (cache.get('a'), cache.items(), len(cache)) == ('A', ['A'], 1)
    clock.advance(61)

    assert (cache.get('a'), len(cache), log.is_on_disk) == (None, 0, False)


async def test_oldest_logs_are_evicted_above_the_size_limit():
    """004-30: Bounded or windowed buffer, or spill to disk, for very large responses."""
    cache = make_cache(FakeClock())

    for name in 'abc':
        cache.put(name, name, logs_of(400))

    assert cache.items() == ['b', 'c']
    assert sum(log.size_bytes for log in cache.logs) == 800
    cache.clear()
    assert cache.items() == []


async def test_log_cache_limits_open_files():
    cache = make_cache(FakeClock(), max_bytes=10**9)

    for number in range(MAX_FILES + 3):
        cache.put(str(number), str(number), logs_of(100, memory_bytes=10))

    assert len(cache) == MAX_FILES
    assert sum(log.is_on_disk for log in cache.logs) == MAX_FILES
    cache.clear()
