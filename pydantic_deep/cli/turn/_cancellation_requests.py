"""Requests to cancel a run that another process has stored, such as a server that shows the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

import anyio
from pydantic_ai import CancellationToken

from pydantic_deep.store import SqlStore, Store, StoreUnavailableError

POLL_SECONDS: Final = 1.0
"""Interval at which the store is asked while a run is executed."""


@asynccontextmanager
async def cancelled_on_request(
    store: Store, run_id: Callable[[], str | None], token: CancellationToken
) -> AsyncGenerator[None]:
    """Cancel a run of this process as soon as the store has a request for it.

    Args:
        store: The store of the command line, which other processes can open.
        run_id: Returns the id of the run; `None` before it begins.
        token: The cancellation token of the run.
    """
    watch = asyncio.ensure_future(_watch(cast('SqlStore', store), run_id, token))  # `open_store` returns this type
    try:
        yield
    finally:
        watch.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([watch])


async def _watch(store: SqlStore, run_id: Callable[[], str | None], token: CancellationToken) -> None:
    while not token.cancelled:
        await anyio.sleep(POLL_SECONDS)
        with suppress(StoreUnavailableError):  # the turn reports it, when it stores its next step
            if run_id() in await store.queue.cancelled():
                token.cancel()
