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

    A shielded scope of anyio stops only cancellation by other scopes. `Task.cancel`, which asyncio, pydantic-ai and web
    servers use, passes through it, once for each task above this one. So the work runs in a separate task that no other
    code can cancel.

    Raises:
        asyncio.CancelledError: This task was cancelled. The work is done.
        BaseException: The work failed.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):  # otherwise a cancelled outer scope would cancel every wait at once
            while not task.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([task])
        task.result()
        raise
    return task.result()
