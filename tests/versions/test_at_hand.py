"""What was used last is kept at hand, and no more of it than was asked for."""

from __future__ import annotations

from pydantic_deep.versions._lru import LRUCache


def test_the_value_that_was_used_longest_ago_goes() -> None:
    at_hand = LRUCache[int](kept=2)
    at_hand.set('a', 1)
    at_hand.set('b', 2)
    assert at_hand.get('a') == 1
    at_hand.set('c', 3)
    assert [at_hand.get(key) for key in 'abc'] == [1, None, 3]
