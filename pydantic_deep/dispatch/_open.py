"""`open_dispatcher`: opens the engine of a URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ._protocol import Dispatcher


@asynccontextmanager
async def open_dispatcher(url: str) -> AsyncGenerator[Dispatcher]:
    """Open the engine at `url`, and close it on exit."""
    raise ValueError(f'There is no dispatcher at {url!r}.')
    yield
