"""`FairSemaphore`: limits the number of concurrent queries of a replica."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager


class FairSemaphore:
    """A first-come, first-served semaphore for tasks of any thread and event loop. Each caller passes its own limit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0
        self._queue: deque[tuple[int, Future[None]]] = deque()

    @asynccontextmanager
    async def slot(self, at_once: int, wait_seconds: float | None = None) -> AsyncGenerator[None]:
        """Acquire a slot once fewer than `at_once` are taken, and release it on exit.

        Raises:
            TimeoutError: No slot was available within `wait_seconds`.
        """
        await self._acquire(at_once, wait_seconds)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, at_once: int, wait_seconds: float | None) -> None:
        slot: Future[None] = Future()
        with self._lock:
            self._queue.append((at_once, slot))
            self._grant()
        try:
            async with asyncio.timeout(wait_seconds):  # `wait_for` of Python 3.11 loses a late cancellation
                await asyncio.wrap_future(slot)
        except BaseException:
            if not slot.cancel():  # it was granted meanwhile
                self._release()
            raise

    def _release(self) -> None:
        with self._lock:
            self._taken -= 1
            self._grant()

    def _grant(self) -> None:
        while self._queue and (self._queue[0][1].cancelled() or self._taken < self._queue[0][0]):
            _, slot = self._queue.popleft()
            if slot.set_running_or_notify_cancel():
                self._taken += 1
                slot.set_result(None)
