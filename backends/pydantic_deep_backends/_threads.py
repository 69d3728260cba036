"""Work in a thread that always ends before its caller resumes, even if the caller is cancelled.

`anyio.to_thread.run_sync` shields the caller from anyio's own cancellation, but not from asyncio's `task.cancel()`: the
caller would resume while the thread still writes, and would read files that change underneath it.
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
    """Run `function` in a worker thread. Once it has started, it ends before this call does, even on cancellation.

    A function that has not started when the caller is cancelled never starts.
    """
    work = _Work(function)
    try:
        # A result of `None` is never returned from here: then the caller was cancelled.
        return cast('T', await anyio.to_thread.run_sync(work.run))
    finally:
        if work.is_under_way():
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(work.ended.wait)


def check_cancelled() -> None:
    """Abort a function that `run_to_completion` runs if its caller was cancelled.

    For long reads only: a write must finish.
    """
    anyio.from_thread.check_cancelled()
    if _current.work.is_abandoned:
        raise _AbandonedError


class _AbandonedError(Exception):
    """asyncio cancelled the caller. Nothing catches this error."""


class _Work(Generic[T]):
    """A function that runs once, unless it is abandoned before it starts."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.ended = threading.Event()
        self._function = function
        self._lock = threading.Lock()
        self._has_begun = False
        self.is_abandoned = False

    def run(self) -> T | None:
        with self._lock:
            if self.is_abandoned:
                return None
            self._has_begun = True
        _current.work = cast('_Work[object]', self)
        try:
            return self._function()
        finally:
            self.ended.set()

    def is_under_way(self) -> bool:
        """Return whether the function has started and not ended. A function that has not started never will."""
        with self._lock:
            self.is_abandoned = True
            return self._has_begun and not self.ended.is_set()


class _Current(threading.local):
    """The work of the current worker thread."""

    work: _Work[object]


_current = _Current()
