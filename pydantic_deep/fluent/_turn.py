"""`Turn`: a run in its own task, which proceeds only when the reader asks for the next item.

The run is opened and closed within its task, regardless of its readers. `_runtime` defines the run, and `_conversation`
handles its outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Generic

from typing_extensions import TypeVar

from pydantic_deep._run_to_completion import run_to_completion

from .errors import TurnStoppedError

ItemT = TypeVar('ItemT')


class Turn(Generic[ItemT]):
    """A turn that emits items, and is suspended after each one until the reader asks for the next.

    Args:
        conversation_id: The id of the conversation, for errors.
        work: Runs the turn, and calls `emit` with each item.
    """

    def __init__(self, conversation_id: str, work: Callable[[Turn[ItemT]], Coroutine[object, object, None]]) -> None:
        self._conversation_id = conversation_id
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._items: deque[ItemT] = deque()
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._is_stopped = False

    async def next(self) -> ItemT | None:
        """Return the next item; `None` at the end. Cancelling this call stops the turn.

        Raises:
            TurnStoppedError: The turn was stopped.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._work(self))
            self._task.add_done_callback(lambda _: self._changed.set())
        self._wanted.set()
        try:
            while not self._items and not self._task.done():
                self._changed.clear()
                await self._changed.wait()
        except BaseException:
            await self.stop()
            raise
        finally:
            self._wanted.clear()
        if self._items:
            return self._items.popleft()
        if self._is_stopped:
            raise TurnStoppedError(self._conversation_id)
        self._task.result()
        return None

    async def emit(self, item: ItemT) -> None:
        """Pass an item to the reader, and return when the reader asks for the next one."""
        self._items.append(item)
        self._wanted.clear()
        self._changed.set()
        await self._wanted.wait()

    async def stop(self) -> None:
        """Stop the turn, and return when it is closed, even during cancellation. Does nothing if the turn has ended.

        Raises:
            BaseException: An error while the turn was closing.
        """
        if self._task is None or self._task.done():
            return
        if not self._is_stopped:  # a second call must not interrupt the closing
            self._is_stopped = True
            self._task.cancel()
        await run_to_completion(_ended(self._task))
        if not self._task.cancelled():
            self._task.result()


async def _ended(task: asyncio.Task[None]) -> None:
    """Return when a task has ended, with or without an error."""
    await asyncio.wait([task])
