"""Await work that must complete despite cancellation, with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import anyio


async def settle(work: Coroutine[object, object, None], seconds: float, on_late: Callable[[], None]) -> None:
    """Await work to completion even if the current task is cancelled, and raise the cancellation afterwards.

    Args:
        work: The work. It must not raise.
        seconds: Maximum time to await it. A database call may ignore cancellation, so only this limit ends the wait.
        on_late: Called if the time limit was exceeded or the work cancelled itself. It is then unknown whether it
            completed.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    stopped: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done() and (left := deadline - loop.time()) > 0:
            try:
                await asyncio.wait([task], timeout=left)
            except asyncio.CancelledError as error:  # each enclosing task may cancel again
                stopped = error
    if not task.done() or task.cancelled():
        task.cancel()
        on_late()
    if stopped is not None:
        raise stopped
