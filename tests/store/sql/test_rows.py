"""Rows of the tables: their encoding, and their seals."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import BranchRecord, Commit, StoreCorruptedError, new_id, open_store
from pydantic_deep.store._samples import Dialogue, sample_call, sample_run
from pydantic_deep.store.sql import _rows
from pydantic_deep.store.sql._keys import pack_id

pytestmark = pytest.mark.anyio


async def test_call_arguments_are_compressed(tmp_path: Path) -> None:
    arguments = '{"content":"%s"}' % ('the same line again\\n' * 200)
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        dialogue = Dialogue(store)
        await dialogue.begin()
        run = sample_run(dialogue.id)
        call = sample_call(run.id, 'response', 'call', arguments=arguments)
        await store.commit(Commit(runs=[run], calls=[call]))
        assert await store.calls([run.id]) == [call]
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        kept = raw.execute('SELECT LENGTH(arguments) FROM tool_call').fetchall()
    assert kept[0][0] < len(arguments) / 10


ID = new_id()


def test_branch_with_a_missing_parent_is_damage() -> None:
    branch = BranchRecord(ID, new_id(), 'main', None, 0, 0, None, None, 0)
    row = (pack_id(ID), pack_id(branch.conversation_id), 'main', None, 0, 0, None, None, 0, 1, 1, 7, None)
    sealed = (*row, _rows.branch_seal(branch, 7, None))

    with pytest.raises(StoreCorruptedError, match='it is missing, and the branch') as error:
        _rows.branch_from(sealed)
    assert (error.value.table, error.value.row) == ('branch', '7')
