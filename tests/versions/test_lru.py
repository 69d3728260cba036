"""The cache evicts the least recently used entry."""

from __future__ import annotations

from pydantic_deep.versions._lru import LRUCache


def test_least_recently_used_value_is_evicted() -> None:
    cache = LRUCache[int](max_entries=2)
    cache.set('a', 1)
    cache.set('b', 2)
    assert cache.get('a') == 1
    cache.set('c', 3)
    assert [cache.get(key) for key in 'abc'] == [1, None, 3]
