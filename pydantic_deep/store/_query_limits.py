"""What bounds queries of callers: `SqlLimits`, and `Turns`, in which they wait for each other."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields

from pydantic_deep.errors import ValidationError

_LEAST_BYTES = 16 * 2**20
"""With less memory DuckDB answers nothing."""


@dataclass(frozen=True, kw_only=True)
class SqlLimits:
    """What one query may take. Each runs in a process of its own, which the kernel holds to it.

    Raises:
        ValidationError: A limit is not a number above 0, or allows less than any query needs.
    """

    timeout_seconds: float = 60
    """How long it may run; then it is killed."""
    memory_bytes: int = 2**30
    """How much memory it may take beside the tables, which all queries share; at least 16 MiB."""
    max_bytes: int = 256 * 2**20
    """How large its result may be, in Python."""
    at_once: int = 2
    """How many queries of one store may run at once; what comes then waits."""
    wait_seconds: float = 10
    """How long it may wait for others."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            kind, wanted = (int, 'a whole number') if isinstance(field.default, int) else (int | float, 'a number')
            if field.name.endswith('seconds'):
                kind, wanted = int | float, 'a number'
            if isinstance(value, bool) or not isinstance(value, kind) or not 0 < value < math.inf:
                raise ValidationError(field.name, f'it is {value!r}, and it must be {wanted} above 0.')
        if self.memory_bytes < _LEAST_BYTES:
            raise ValidationError('memory_bytes', f'it is {self.memory_bytes}, and it must be {_LEAST_BYTES} or more.')


class Turns:
    """Lets some work at once, and the rest wait in order. It may be used from any thread and event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = 0
        self._waiting: deque[tuple[int, Future[None]]] = deque()

    @asynccontextmanager
    async def turn(self, at_once: int, wait_seconds: float | None = None) -> AsyncGenerator[None]:
        """Wait until fewer than `at_once` work.

        Raises:
            TimeoutError: It was not so within `wait_seconds`.
        """
        await self._begin(at_once, wait_seconds)
        try:
            yield
        finally:
            self._end()

    async def _begin(self, at_once: int, wait_seconds: float | None) -> None:
        turn: Future[None] = Future()
        with self._lock:
            self._waiting.append((at_once, turn))
            self._call_next()
        try:
            async with asyncio.timeout(wait_seconds):  # `wait_for` of Python 3.11 loses a cancellation that comes late
                await asyncio.wrap_future(turn)
        except BaseException:
            if not turn.cancel():  # it has come meanwhile
                self._end()
            raise

    def _end(self) -> None:
        with self._lock:
            self._working -= 1
            self._call_next()

    def _call_next(self) -> None:
        while self._waiting and (self._waiting[0][1].cancelled() or self._working < self._waiting[0][0]):
            _, turn = self._waiting.popleft()
            if turn.set_running_or_notify_cancel():
                self._working += 1
                turn.set_result(None)
