"""The contract of `Repository`, in memory and on the engines of the store (004-08: SQL)."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Generic, TypeVar

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import MemoryRepository, Repository, SqlRepository, open_repository
from pydantic_deep.repository.conformance import OpenRepository, RepositorySuite
from pydantic_deep.store import new_id, open_store
from pydantic_deep.store.postgres._driver import connect

T = TypeVar('T', bound=BaseModel)

_SCHEMAS = itertools.count()


async def opener(url: str) -> AsyncGenerator[OpenRepository]:
    """Yield a function that opens repositories at a URL, and close them at the end."""
    async with AsyncExitStack() as stack:

        async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
            return await stack.enter_async_context(open_repository(url, model, key=key, fields=fields))

        yield open_one


class TestMemoryRepository(RepositorySuite):
    is_shared = False
    is_durable = False

    @pytest.fixture
    def open_repository(self) -> OpenRepository:
        async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
            return MemoryRepository(model, key=key, fields=fields)

        return open_one


class WithoutTransactions(Generic[T]):
    """A third-party repository without transactions."""

    def __init__(self, rows: Repository[T]) -> None:
        self.create, self.get, self.list, self.upsert = rows.create, rows.get, rows.list, rows.upsert
        self.delete, self.count, self.aclose = rows.delete, rows.count, rows.aclose


class TestWithoutTransactions(RepositorySuite):
    is_shared = False
    is_durable = False

    @pytest.fixture
    def open_repository(self) -> OpenRepository:
        async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
            return WithoutTransactions(MemoryRepository(model, key=key, fields=fields))

        return open_one


class TestMemoryEngine(RepositorySuite):
    @pytest.fixture
    async def open_repository(self) -> AsyncGenerator[OpenRepository]:
        async for open_one in opener(f'memory:{new_id()}'):
            yield open_one


class TestSqlite(RepositorySuite):
    """004-08: SQL, in a file of its own."""

    @pytest.fixture
    async def open_repository(self, tmp_path: Path) -> AsyncGenerator[OpenRepository]:
        async for open_one in opener(f'sqlite:///{tmp_path}/rows.db'):
            yield open_one


class TestSqliteOfAStore(RepositorySuite):
    """004-08: SQL, in the file of a store."""

    @pytest.fixture
    async def open_repository(self, tmp_path: Path) -> AsyncGenerator[OpenRepository]:
        async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:

            async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
                return await SqlRepository.open(store, model, key=key, fields=fields)

            yield open_one


@pytest.fixture(scope='module')
def database_url(new_postgres_url: Callable[[], str]) -> str:
    return new_postgres_url()


class TestPostgres(RepositorySuite):
    """004-08: SQL, on a server; each test has a schema of its own."""

    @pytest.fixture
    async def open_repository(self, database_url: str) -> AsyncGenerator[OpenRepository]:
        schema = f'test{next(_SCHEMAS)}'
        connection = await connect(database_url)
        await connection.execute(f'CREATE SCHEMA {schema}')
        await connection.close()
        async for open_one in opener(f'{database_url}&search_path={schema}'):
            yield open_one
