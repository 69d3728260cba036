"""`LogCache`: the logs of ended runs for clients that reconnect, limited by age, number and size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ._run_log import RunLog

MAX_FILES = 64
"""The maximum number of open temporary files. Most systems allow 1,024 descriptors per process, sockets included."""

ItemT = TypeVar('ItemT')


@dataclass(frozen=True)
class _Entry(Generic[ItemT]):
    item: ItemT
    logs: Callable[[], Sequence[RunLog]]
    until: float


@dataclass(kw_only=True)
class LogCache(Generic[ItemT]):
    """Items with logs, by key. The oldest are evicted first; their events can be rebuilt from the store."""

    retention_seconds: float
    """How long each item is cached."""
    max_bytes: int
    """The maximum total size of all logs."""
    clock: Callable[[], float]
    """A monotonic clock, in seconds."""
    _entries: dict[str, _Entry[ItemT]] = field(default_factory=dict[str, _Entry[ItemT]], init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: str, item: ItemT, logs: Callable[[], Sequence[RunLog]]) -> None:
        """Add an item under a new key.

        Args:
            key: The key.
            item: The item.
            logs: Returns its logs, to which others may be added later.
        """
        self._entries[key] = _Entry(item, logs, self.clock() + self.retention_seconds)
        self.evict()

    def get(self, key: str) -> ItemT | None:
        """Return a cached item, or `None` if it was evicted."""
        self.evict()
        entry = self._entries.get(key)
        return None if entry is None else entry.item

    def items(self) -> list[ItemT]:
        """Return all cached items, oldest first."""
        return [entry.item for entry in self._entries.values()]

    @property
    def logs(self) -> list[RunLog]:
        """The logs of all cached items."""
        return [log for entry in self._entries.values() for log in entry.logs()]

    def evict(self) -> None:
        """Remove items that are too old, and the oldest items beyond the limits."""
        now, logs = self.clock(), self.logs
        size, files = sum(log.size_bytes for log in logs), sum(log.is_on_disk for log in logs)
        for key, entry in list(self._entries.items()):
            if now < entry.until and size <= self.max_bytes and files <= MAX_FILES:
                return
            size -= sum(log.size_bytes for log in entry.logs())
            files -= sum(log.is_on_disk for log in entry.logs())
            self._remove(key)

    def clear(self) -> None:
        """Remove all items and discard their logs."""
        for key in list(self._entries):
            self._remove(key)

    def _remove(self, key: str) -> None:
        for log in self._entries.pop(key).logs():
            log.discard()
