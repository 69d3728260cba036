"""Tallies of rows reveal missing rows, and follow deletions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import StoreCorruptedError, VersionFilter, new_id, open_store
from pydantic_deep.store._samples import Dialogue, sample_run
from tests.store.damage import check_after, make_sample

pytestmark = pytest.mark.anyio


async def test_wrong_count_is_reported(tmp_path: Path) -> None:
    """A count of a run, conversation or version that is too high, too low or not a number is reported, together with
    other damage.
    """
    await make_sample(tmp_path / 'agents.db')
    for table in ('run', 'request', 'tool_call', 'edge', 'version', 'reference'):
        of_one = "parent <> x''" if table != 'reference' else '1 = 1'
        for total in ('total + 1', 'total - 1', "'many'"):
            found = await check_after(
                tmp_path / 'agents.db', f"UPDATE tally SET total = {total} WHERE name = '{table}' AND {of_one}"
            )
            assert [damage.table for damage in found] == [table], (table, total, found)


async def test_deletion_and_garbage_collection_update_the_counts(tmp_path: Path) -> None:
    """Rows that were deleted on purpose are not reported as missing."""
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        dialogue = Dialogue(store)
        root = await dialogue.begin(metadata='{"a":1}')
        first, _ = await dialogue.delegate(root)
        second = await dialogue.add(first, b'{"second":2}')
        await dialogue.add(first, b'{"fork":2}')
        await store.delete(second.id)
        await store.delete(first.id)
        await store.gc(0)
        assert await store.check() == []
        assert await store.children(root.id) == []
        assert len(await store.versions()) == await store.count()


async def test_versions_of_a_run_and_of_a_conversation_are_counted(tmp_path: Path) -> None:
    """A missing version is detected by every list and count of its run or conversation, filtered or not. The steps of a
    turn are such a list.
    """
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        dialogue, other = Dialogue(store), Dialogue(store)
        run = sample_run(dialogue.id)
        step = await dialogue.add(await dialogue.begin(), b'1', commit={'runs': [run]}, kind='step', run_id=run.id)
        await dialogue.add(step, b'2', run_id=run.id)
        await other.add(await other.begin(), b'3')
    filters = (
        VersionFilter(run_id=run.id, kinds=['step']),
        VersionFilter(conversation_id=dialogue.id),
        VersionFilter(conversation_id=dialogue.id, kinds=['turn']),
    )
    async with open_store(url) as store:
        assert await store.count() == 5  # rows may be damaged after they were counted
        with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
            assert raw.execute("DELETE FROM version WHERE kind = 'step'").rowcount == 1
            raw.commit()
        for filter in filters:
            for read in (store.versions(filter), store.versions(filter, offset=1), store.count(filter)):
                with pytest.raises(StoreCorruptedError, match='3 rows were written, and 2 exist'):
                    await read
        assert await store.count(VersionFilter(conversation_id=other.id)) == 2
        assert await store.versions(VersionFilter(run_id=new_id())) == []
