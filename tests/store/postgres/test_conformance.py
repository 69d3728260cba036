"""The contract of `Store`, for PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest

from pydantic_deep.store import Store, open_store
from pydantic_deep.store.conformance import OpenStore, StoreSuite


class TestPostgresStore(StoreSuite):
    @pytest.fixture
    async def open_store(self, postgres_url: str) -> AsyncGenerator[OpenStore]:
        async with AsyncExitStack() as stack:

            async def open_one() -> Store:
                return await stack.enter_async_context(open_store(postgres_url))

            yield open_one
