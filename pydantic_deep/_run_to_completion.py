"""Work that runs to completion even if the task that awaits it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import TypeVar

import anyio

T = TypeVar('T')


async def run_to_completion(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to completion, even if this task is cancelled meanwhile; the cancellation is raised afterwards.

    A shield of anyio holds off only cancellations by scopes. `Task.cancel`, which asyncio, pydantic-ai and web servers
    use, goes through it, and again for each task above this one: so the work runs in a task that nobody else knows.

    Raises:
        asyncio.CancelledError: This task was cancelled. The work is done.
        BaseException: The work failed.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):  # one that is cancelled would cancel each wait, at once
            while not task.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([task])
        task.result()
        raise
    return task.result()
