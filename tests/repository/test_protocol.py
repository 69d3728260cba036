"""The protocols of repositories: one with transactions, and one without."""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import MemoryRepository, Repository, SupportsTransactions, open_repository
from pydantic_deep.repository.conformance import OpenRepository, RepositorySuite
from tests.repository.conftest import Person

T = TypeVar('T', bound=BaseModel)


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


async def test_sql_repository_supports_transactions() -> None:
    async with open_repository('memory:', Person) as people:
        assert isinstance(people, Repository)
        assert isinstance(people, SupportsTransactions)
