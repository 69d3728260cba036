"""Rules about transactions and concurrent writes."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from pydantic_deep.repository._protocol import Repository
from pydantic_deep.repository._types import Create, Delete, Upsert
from pydantic_deep.repository.errors import InvalidRowError, RowExistsError

from ._base import SAMPLES, RepositoryRules, Sample, apply, keys

_TASKS: Final = 50


class TransactionRules(RepositoryRules):
    """Rules about transactions and concurrent writes."""

    async def test_changes_are_applied_in_order(self, five: Repository[Sample]) -> None:
        """004-04: transactions, if the engine supports them."""
        await apply(five, [Delete('a'), Create(Sample(id='a', name='new')), Upsert(Sample(id='f')), Delete('f')])
        assert (await five.get('a')).name == 'new'
        assert keys(await five.list()) == 'abcde'

    async def test_failed_change_discards_all_changes(self, five: Repository[Sample]) -> None:
        with pytest.raises(RowExistsError, match="'b'"):
            await apply(five, [Delete('a'), Upsert(Sample(id='c')), Create(Sample(id='f')), Create(Sample(id='b'))])
        assert (await five.list()).items == list(SAMPLES)

    async def test_unstorable_row_discards_all_changes(self, five: Repository[Sample]) -> None:
        with pytest.raises(InvalidRowError):
            await apply(five, [Delete('a'), Upsert(Sample(id='c', name='a\0b'))])
        assert (await five.list()).items == list(SAMPLES)

    async def test_unstorable_row_is_refused_before_any_change(self, five: Repository[Sample]) -> None:
        with pytest.raises(InvalidRowError):
            await apply(five, [Create(Sample(id='a')), Upsert(Sample(id='c', name='a\0b'))])

    async def test_empty_list_of_changes_changes_nothing(self, five: Repository[Sample]) -> None:
        await apply(five, [])
        await apply(five, [Delete('a\0b'), Delete('none')])
        assert (await five.list()).items == list(SAMPLES)

    async def test_concurrent_tasks_can_write(self, rows: Repository[Sample]) -> None:
        await asyncio.gather(*(rows.upsert(Sample(id=f'{task:02}', count=task)) for task in range(_TASKS)))
        assert [row.count for row in (await rows.list()).items] == list(range(_TASKS))

    async def test_concurrent_tasks_can_write_one_row(self, rows: Repository[Sample]) -> None:
        await asyncio.gather(*(rows.upsert(Sample(id='a', count=task, name=f'of {task}')) for task in range(_TASKS)))
        (row,) = (await rows.list()).items
        assert row.name == f'of {row.count}'
        assert await rows.count({'name': row.name, 'count': row.count}) == 1

    async def test_one_of_several_concurrent_tasks_creates_a_row(self, rows: Repository[Sample]) -> None:
        async def create(task: int) -> int | None:
            try:
                await rows.create(Sample(id='a', count=task))
            except RowExistsError:
                return None
            return task

        winners = [task for task in await asyncio.gather(*map(create, range(_TASKS))) if task is not None]
        assert winners == [(await rows.get('a')).count]
