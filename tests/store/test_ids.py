"""Ids sort by creation time, and increase even if the clock is set back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from pydantic_deep.store import new_id


def test_id_is_a_uuid_of_version_7() -> None:
    id = UUID(new_id())
    assert (id.version, id.variant) == (7, 'specified in RFC 4122')


def test_ids_of_concurrent_threads_are_distinct_and_increase() -> None:
    def make(_: int) -> list[str]:
        return [new_id() for _ in range(2000)]

    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(make, range(4)))
    assert all(ids == sorted(ids) for ids in made)
    assert len({id for ids in made for id in ids}) == 8000


def test_id_contains_its_time_and_increases_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('pydantic_deep.store._ids._last', 0)
    with monkeypatch.context() as patch:
        patch.setattr('time.time_ns', lambda: 1_800_000_000_123_000_000)
        first = new_id()
        patch.setattr('time.time_ns', lambda: 1_700_000_000_000_000_000)
        second = new_id()
    assert UUID(first).int >> 80 == 1_800_000_000_123
    assert second > first
