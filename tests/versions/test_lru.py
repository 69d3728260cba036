"""The cache evicts the least recently used entry."""

from __future__ import annotations

from pydantic_deep.versions._lru import LRUCache


def test_the_value_that_was_used_longest_ago_goes() -> None:
    cache = LRUCache[int](max_entries=2)
    cache.set('a', 1)
    cache.set('b', 2)
    assert cache.get('a') == 1
    cache.set('c', 3)
    assert [cache.get(key) for key in 'abc'] == [1, None, 3]
