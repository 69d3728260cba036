"""The net effect of several changes equals that of the changes one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from pydantic_deep.repository import Change, Create, Delete, InvalidRowError, MemoryRepository, RowExistsError, Upsert
from pydantic_deep.repository._changes import net_changes, read_steps
from pydantic_deep.repository._model import RowModel


class Item(BaseModel):
    id: str
    size: int = 0


MODEL = RowModel(Item, key='id', fields=())

ITEMS = st.builds(Item, id=st.sampled_from('abc'), size=st.integers(0, 9))
CHANGES: st.SearchStrategy[list[Change[Item]]] = st.lists(
    st.builds(Create[Item], ITEMS) | st.builds(Upsert[Item], ITEMS) | st.builds(Delete, st.sampled_from('abc')),
    max_size=8,
)


async def apply_one_by_one(rows: MemoryRepository[Item], changes: Sequence[Change[Item]]) -> None:
    for change in changes:
        match change:
            case Create(item=item):
                await rows.create(item)
            case Upsert(item=item):
                await rows.upsert(item)
            case Delete(key=key):
                await rows.delete(key)


async def check(changes: Sequence[Change[Item]]) -> None:
    together, one_by_one = MemoryRepository(Item), MemoryRepository(Item)
    for rows in (together, one_by_one):
        await rows.create(Item(id='a'))
    refused = ''
    try:
        await apply_one_by_one(one_by_one, changes)
    except RowExistsError as error:
        refused = error.key
    if refused:
        with pytest.raises(RowExistsError, match=f"'{refused}'"):
            await together.apply(changes)
        assert (await together.list()).items == [Item(id='a')]
    else:
        await together.apply(changes)
        assert (await together.list()).items == (await one_by_one.list()).items


@given(CHANGES)
def test_changes_have_the_effect_of_the_same_changes_one_by_one(changes: list[Change[Item]]) -> None:
    anyio.run(check, changes)


def test_row_is_no_change() -> None:
    changes: Any = [Item(id='a')]
    with pytest.raises(InvalidRowError, match=r'`Item` is no change\. Pass `Create`, `Upsert` and `Delete`\.'):
        read_steps(MODEL, changes)


def test_last_change_of_a_key_decides() -> None:
    steps = read_steps(MODEL, [Create(Item(id='a')), Delete('b'), Upsert(Item(id='a', size=2))])
    after = net_changes('Item', steps, present={'b'})
    assert {key: row and MODEL.decode(key, row.body) for key, row in after.items()} == {
        'a': Item(id='a', size=2),
        'b': None,
    }


def test_deletion_of_a_key_that_no_row_can_have_is_omitted() -> None:
    assert read_steps(MODEL, [Delete(''), Delete('a\x00b')]) == []
