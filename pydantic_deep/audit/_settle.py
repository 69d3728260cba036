"""Awaiting what must be done although everything is being cancelled, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import anyio


async def settle(work: Coroutine[object, object, None], seconds: float, on_late: Callable[[], None]) -> None:
    """Await work to its end, also in a task that is cancelled; the cancellation is raised then.

    Args:
        work: What is to be done. It raises nothing.
        seconds: How long to wait for it. A database may go on with what it has begun, so that nothing else ends a wait.
        on_late: Called if that was not enough, or the work has cancelled itself: whether it is done is not known.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    stopped: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done() and (left := deadline - loop.time()) > 0:
            try:
                await asyncio.wait([task], timeout=left)
            except asyncio.CancelledError as error:  # each task above this one may tell it again
                stopped = error
    if not task.done() or task.cancelled():
        task.cancel()
        on_late()
    if stopped is not None:
        raise stopped
