"""Damage reported by `check`."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep import StateBackend, VersionedAgent, create_deep_agent
from pydantic_deep.store import Damage, StoreCorruptedError, open_store
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.testing import ScriptedModel
from tests.store.damage import changes, check_after, deletions, make_sample

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_every_changed_value_is_reported(tmp_path: Path) -> None:
    """If any value in any row was changed, a check reports it."""
    await make_sample(tmp_path / 'agents.db')
    by_column = {each.partition(' WHERE')[0].rpartition(' = ')[0]: each for each in changes(tmp_path / 'agents.db')}
    assert len(by_column) > 100
    for column, statement in by_column.items():
        # Numbers have no effect by themselves, and requests to cancel are no part of a record.
        if not column.endswith(('SET number', 'SET writer', 'SET cancelled_at')):
            assert await check_after(tmp_path / 'agents.db', statement), statement


@pytest.mark.slow
async def test_every_missing_row_is_reported(tmp_path: Path) -> None:
    """If any row of any table is missing, a check reports it."""
    await make_sample(tmp_path / 'agents.db')
    statements = list(deletions(tmp_path / 'agents.db'))
    assert len(statements) > 50
    for statement in statements:
        assert await check_after(tmp_path / 'agents.db', statement), statement


async def test_check_names_the_row_and_everything_that_depends_on_it(tmp_path: Path) -> None:
    """For a damaged message, a check names the versions with it in their history, on all branches, and no others."""
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        dialogue = Dialogue(store)
        root = await dialogue.begin()
        first = await dialogue.add(root, b'{"first":1}')
        second = await dialogue.add(first, b'{"second":2}')
        fork_above = await dialogue.add(first, b'{"fork":1}')
        fork_below = await dialogue.add(second, b'{"fork":2}')
        await dialogue.add(second, b'{"main":3}')
        newest = (await store.versions(limit=1))[0]
        message = (await store.messages(second.branch_id, 2))[1]
        assert await store.check() == []
        assert fork_above.branch_id != second.branch_id
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        raw.execute("UPDATE message SET body = x'00ff' WHERE number = 2")
        raw.commit()
    async with open_store(f'sqlite:///{tmp_path}/agents.db', read_only=True) as store:
        assert await store.check() == [
            Damage(
                table='message',
                row=message.id,
                problem='a value differs from the one that was written',
                versions=tuple(sorted([second.id, fork_below.id, newest.id])),
                conversations=(dialogue.id,),
            )
        ]


async def test_undamaged_store_on_postgresql_has_no_damage(tmp_path: Path, postgres_url: str) -> None:
    """A check of PostgreSQL reports nothing for an undamaged store, and a changed row otherwise."""
    async with open_store(postgres_url) as store:
        dialogue = Dialogue(store)
        turn = await dialogue.add(await dialogue.begin(metadata='{"a":1}'), b'{"first":1}', b'{"second":2}')
        assert await store.check() == []
        await store.engine.write(_change)
        (damage,) = await store.check()
    assert (damage.table, damage.row, damage.versions) == ('version', turn.id, (turn.id,))


def _change():
    from pydantic_deep.store.engine import Statement

    yield Statement("UPDATE version SET state = 'failed' WHERE kind = 'turn'")


async def test_damaged_schema_is_reported_as_damage(tmp_path: Path) -> None:
    """A column or table that is missing from the database is damage, and reopening the store is not suggested."""
    await make_sample(tmp_path / 'agents.db')
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        raw.execute('ALTER TABLE asset RENAME COLUMN digest TO diges')
    async with open_store(f'sqlite:///{tmp_path}/agents.db', read_only=True) as store:
        with pytest.raises(StoreCorruptedError, match='no such column'):
            await store.versions()
        assert {'asset', 'version'} <= {damage.table for damage in await store.check()}


async def test_check_visits_a_shared_subtree_once(tmp_path: Path) -> None:
    backend = StateBackend()
    for place in ('a', 'b', 'c/a'):
        await backend.write_bytes(f'/{place}/same.txt', b'the same')
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        await VersionedAgent(create_deep_agent(ScriptedModel()), store).create(backend=backend)
        assert await store.check() == []


@pytest.mark.parametrize('data', ["x'09'", "x''", 'NULL', '7'])
async def test_undecodable_contents_are_reported(tmp_path: Path, data: str) -> None:
    await make_sample(tmp_path / 'agents.db')
    shutil.copy(tmp_path / 'agents.db', tmp_path / 'copy.db')
    with closing(sqlite3.connect(tmp_path / 'copy.db')) as raw:
        columns = [row[1] for row in raw.execute('PRAGMA table_info(message)')]
        assert 'body' in columns
        try:
            raw.execute(f'UPDATE message SET body = {data} WHERE number = 1')
        except sqlite3.IntegrityError:
            raw.execute("UPDATE message SET body = 'text' WHERE number = 1")
        raw.commit()
    async with open_store(f'sqlite:///{tmp_path}/copy.db') as store:
        assert {damage.table for damage in await store.check()} >= {'message'}
