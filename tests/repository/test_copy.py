"""Copying rows from one repository to another."""

from __future__ import annotations

from typing import cast

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import Create, MemoryRepository, Range, Repository, Upsert, copy_rows
from pydantic_deep.repository.duckdb import DuckdbRepository

pytestmark = pytest.mark.anyio


class Item(BaseModel):
    id: str
    size: int


class OnlyRows:
    """A target without transactions."""

    def __init__(self, rows: MemoryRepository[Item]) -> None:
        self.upsert = rows.upsert


@pytest.fixture
async def source() -> MemoryRepository[Item]:
    rows = MemoryRepository(Item, fields=('size',))
    await rows.apply([Create(Item(id=f'{number:04}', size=number)) for number in range(1001)])
    return rows


async def test_copy_rows_copies_all_pages(source: MemoryRepository[Item]) -> None:
    async with await DuckdbRepository.open(':memory:', Item) as target:
        assert await copy_rows(source, target) == 1001
        assert (await target.list(limit=1000)).items == (await source.list(limit=1000)).items
        assert await target.get('1000') == Item(id='1000', size=1000)


async def test_existing_rows_are_replaced_and_others_stay(source: MemoryRepository[Item]) -> None:
    target = MemoryRepository(Item)
    await target.apply([Upsert(Item(id='0001', size=-1)), Upsert(Item(id='x', size=-1))])
    assert await copy_rows(source, target, {'size': Range(le=2)}) == 3
    assert [item.size for item in (await target.list()).items] == [0, 1, 2, -1]


async def test_target_without_transactions_gets_rows_one_by_one(source: MemoryRepository[Item]) -> None:
    target = MemoryRepository(Item)
    assert await copy_rows(source, cast('Repository[Item]', OnlyRows(target)), {'size': Range(lt=5)}) == 5
    assert await target.count() == 5


async def test_copying_no_matching_rows_is_a_no_op(source: MemoryRepository[Item]) -> None:
    target = MemoryRepository(Item)
    assert await copy_rows(source, target, {'size': Range(lt=0)}) == 0
    assert await target.count() == 0
