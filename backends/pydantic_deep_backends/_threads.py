"""Work in a thread that has ended when the caller goes on, also when the caller is cancelled.

`anyio.to_thread.run_sync` shields the caller from anyio's own cancellation. asyncio's `task.cancel()` goes through
that shield: the caller goes on while the thread still writes, and what it sees next may change under its eyes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import anyio
import anyio.from_thread
import anyio.to_thread

T = TypeVar('T')


async def run_to_completion(function: Callable[[], T]) -> T:
    """Run `function` in a worker thread; once begun it ends before this does, whatever cancels the caller.

    A function that has not begun when the caller is cancelled does not begin any more.
    """
    work = _Work(function)
    try:
        return cast(
            'T', await anyio.to_thread.run_sync(work.run)
        )  # `None` reaches nobody: then the caller is cancelled
    finally:
        if work.is_under_way():
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(work.ended.wait)


def check_cancelled() -> None:
    """End a function that `run_to_completion` runs, if its caller was cancelled. For long reads: what writes must end whole."""
    anyio.from_thread.check_cancelled()
    if _current.work.is_given_up:
        raise _AbandonedError


class _AbandonedError(Exception):
    """The caller was cancelled by asyncio itself. Nobody catches it."""


class _Work(Generic[T]):
    """A function that is run once, unless it is given up before it begins."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.ended = threading.Event()
        self._function = function
        self._lock = threading.Lock()
        self._has_begun = False
        self.is_given_up = False

    def run(self) -> T | None:
        with self._lock:
            if self.is_given_up:
                return None
            self._has_begun = True
        _current.work = cast('_Work[object]', self)
        try:
            return self._function()
        finally:
            self.ended.set()

    def is_under_way(self) -> bool:
        """Return whether the function has begun and not ended; if it has not begun, it never will."""
        with self._lock:
            self.is_given_up = True
            return self._has_begun and not self.ended.is_set()


class _Current(threading.local):
    """What a worker thread is at."""

    work: _Work[object]


_current = _Current()
