"""The contract of `Store`, for the stores on SQLite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pydantic_deep.store import Store, new_id
from pydantic_deep.store import open_store as open_at
from pydantic_deep.store.conformance import OpenStore, StoreSuite


async def opener(url: str) -> AsyncIterator[OpenStore]:
    """Yield a function that opens stores, and close them at the end."""
    async with AsyncExitStack() as stack:

        async def open_one() -> Store:
            return await stack.enter_async_context(open_at(url))

        yield open_one


class TestMemoryStore(StoreSuite):
    is_durable = False

    @pytest.fixture
    async def open_store(self) -> AsyncIterator[OpenStore]:
        async for open_one in opener(f'memory:{new_id()}'):
            yield open_one


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
        async for open_one in opener(f'sqlite:///{tmp_path}/agents.db'):
            yield open_one
