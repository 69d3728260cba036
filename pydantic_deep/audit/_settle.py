"""Await work that must complete despite cancellation, for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio

LATEST_SECONDS = 60.0
"""How long late work goes on, in seconds. Work that hangs would accumulate otherwise."""


async def settle(work: asyncio.Task[None], seconds: float, on_late: Callable[[], None]) -> None:
    """Await work even if the current task is cancelled, and raise the cancellation afterwards.

    Late work continues for `LATEST_SECONDS`, because on a busy machine it completes in the end.

    Args:
        work: The task with the work. It must not raise.
        seconds: Maximum time to await it. A database call may ignore cancellation, so only this limit ends the wait.
        on_late: Called if the time limit was exceeded or the work cancelled itself. It is then unknown whether it
            completed.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    stopped: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not work.done() and (left := deadline - loop.time()) > 0:
            try:
                await asyncio.wait([work], timeout=left)
            except asyncio.CancelledError as error:  # each enclosing task may cancel again
                stopped = error
    if not work.done() or work.cancelled():
        loop.call_later(LATEST_SECONDS, work.cancel)  # which also keeps the task alive: a loop refers to it weakly
        on_late()
    if stopped is not None:
        raise stopped
