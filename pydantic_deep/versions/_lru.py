"""What was read or made last, kept at hand: values that never change, so nothing here can be stale."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

KEPT = 8
"""How many histories and trees are kept: the next turn from one of the last versions reads nothing again."""

T = TypeVar('T')


class AtHand(Generic[T]):
    """The last values by key. Its lock guards single operations on a dictionary and is never held across an `await`,
    so tasks and threads may share it.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.RLock()
        self._values: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T | None:
        """Return the value of a key, if it is at hand."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def set(self, key: str, value: T) -> T:
        """Keep a value, instead of the one that was used longest ago, and return it."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._kept:
                self._values.popitem(last=False)
        return value
