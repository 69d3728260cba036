"""A cache of immutable values, so that no entry can be stale."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

MAX_ENTRIES = 8
"""Maximum number of cached histories and trees, so that the next turn from a recent version reads nothing again."""

T = TypeVar('T')


class LRUCache(Generic[T]):
    """The most recently used values by key.

    Its lock guards single dictionary operations and is never held across an `await`, so tasks and threads may share it.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._lock = threading.RLock()
        self._values: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T | None:
        """Return the value of a key, or `None` if it is not cached."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def set(self, key: str, value: T) -> T:
        """Cache a value, evicting the least recently used one if the cache is full, and return it."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._max_entries:
                self._values.popitem(last=False)
        return value
