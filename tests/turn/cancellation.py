"""Cancellation at each await of an operation, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar('T')


class Interruption:
    """Calls a function at one await of an operation, counted over its task and all tasks that it starts."""

    def __init__(self) -> None:
        self.position = 0
        """The number of the await, from 1; 0 for none."""
        self.count = 0
        """The awaits of the last operation."""
        self._interrupt: Callable[[], object] | None = None

    async def run(self, work: Coroutine[Any, Any, T], interrupt: Callable[[], object] | None = None) -> T:
        """Run an operation in a task, and interrupt it, by default by cancelling the task."""
        loop = asyncio.get_running_loop()

        def create_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
            return asyncio.Task(_Counted(work, self), loop=loop, **options)

        loop.set_task_factory(create_task)
        task = asyncio.create_task(work)
        self.count, self._interrupt = 0, interrupt or task.cancel
        try:
            return await task
        finally:
            self._interrupt = None
            loop.set_task_factory(None)

    def note_await(self) -> None:
        """Count an await, and interrupt the operation while it waits there."""
        if self._interrupt is None:
            return
        self.count += 1
        if self.count == self.position:
            asyncio.get_running_loop().call_soon(self._interrupt)


class _Counted(Coroutine[Any, Any, T]):
    """A coroutine that reports its awaits. asyncio and anyio find the attributes of the original one."""

    def __init__(self, work: Coroutine[Any, Any, T], interruption: Interruption) -> None:
        self._work = work
        self._interruption = interruption

    def send(self, value: Any) -> Any:
        awaited = self._work.send(value)
        self._interruption.note_await()
        return awaited

    def throw(self, *error: Any) -> Any:
        awaited = self._work.throw(*error)
        self._interruption.note_await()
        return awaited

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)
