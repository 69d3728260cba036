"""`Turn`: a run in a task of its own that goes on only as far as somebody asks it to.

The run belongs to its task, and is opened and closed there, whoever reads along and from where. Not here: what runs
(`_runtime`), and what becomes of it (`_conversation`).
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
    """A turn that yields what it makes, and waits after each until more is wanted.

    Args:
        conversation_id: Whose turn, for errors.
        work: Runs the turn, and calls `emit` with what it makes.
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
        """Return what comes next; `None` at the end. Whoever is cancelled here stops the turn.

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
        """Stop the turn where it is, and return when it is closed, also if that is cancelled; nothing if it has ended.

        Raises:
            BaseException: What went wrong while it was closed.
        """
        if self._task is None or self._task.done():
            return
        if not self._is_stopped:  # what is closing must not be cut off by who asks again
            self._is_stopped = True
            self._task.cancel()
        await run_to_completion(_ended(self._task))
        if not self._task.cancelled():
            self._task.result()


async def _ended(task: asyncio.Task[None]) -> None:
    """Return when a task has ended, however it has."""
    await asyncio.wait([task])
