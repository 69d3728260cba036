"""Logs of what has ended, kept for clients that come back: as long, as many and as large as is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ._run_log import RunLog

MAX_FILES = 64
"""How many temporary files kept logs may have open: most systems allow a process 1,024, and sockets need them too."""

ItemT = TypeVar('ItemT')


@dataclass(frozen=True)
class _Kept(Generic[ItemT]):
    item: ItemT
    logs: Sequence[RunLog]
    until: float


@dataclass(kw_only=True)
class LogShelf(Generic[ItemT]):
    """Things with logs, by a key; the oldest are forgotten first. Nothing here is lost: the store has what was told."""

    retention_seconds: float
    """How long each is kept."""
    max_bytes: int
    """How large all logs may be together."""
    clock: Callable[[], float]
    """Seconds that never go back."""
    _kept: dict[str, _Kept[ItemT]] = field(default_factory=dict[str, _Kept[ItemT]], init=False)

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, key: str, item: ItemT, logs: Sequence[RunLog]) -> None:
        """Keep something that was not kept yet."""
        self._kept[key] = _Kept(item, logs, self.clock() + self.retention_seconds)
        self.sweep()

    def get(self, key: str) -> ItemT | None:
        """Return what is kept; `None` if it is not any more."""
        self.sweep()
        kept = self._kept.get(key)
        return None if kept is None else kept.item

    def items(self) -> list[ItemT]:
        """Return all that is kept, oldest first."""
        return [kept.item for kept in self._kept.values()]

    @property
    def logs(self) -> list[RunLog]:
        """All logs that are kept."""
        return [log for kept in self._kept.values() for log in kept.logs]

    def sweep(self) -> None:
        """Forget what is too old or too much."""
        now, logs = self.clock(), self.logs
        size, files = sum(log.size_bytes for log in logs), sum(log.is_on_disk for log in logs)
        for key, kept in list(self._kept.items()):
            if now < kept.until and size <= self.max_bytes and files <= MAX_FILES:
                return
            size -= sum(log.size_bytes for log in kept.logs)
            files -= sum(log.is_on_disk for log in kept.logs)
            self._forget(key)

    def clear(self) -> None:
        """Forget everything."""
        for key in list(self._kept):
            self._forget(key)

    def _forget(self, key: str) -> None:
        for log in self._kept.pop(key).logs:
            log.forget()
