"""The contract of `Repository`, in memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import MemoryRepository, Repository
from pydantic_deep.repository.conformance import OpenRepository, RepositorySuite

T = TypeVar('T', bound=BaseModel)


class TestMemoryRepository(RepositorySuite):
    is_shared = False
    is_durable = False

    @pytest.fixture
    def open_repository(self) -> OpenRepository:
        async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
            return MemoryRepository(model, key=key, fields=fields)

        return open_one
