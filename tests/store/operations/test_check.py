"""Damage reported by `check`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import Damage, StoreCorruptedError, open_store
from pydantic_deep.store._samples import Dialogue
from tests.store.damage import changes, deletions, make_sample

pytestmark = pytest.mark.anyio


async def _check(path: Path, statement: str) -> list[Damage]:
    """Return the report of a check after a statement, which is then undone."""
    data = path.read_bytes()
    with closing(sqlite3.connect(path)) as raw:
        changed = raw.execute(statement).rowcount
        raw.commit()
    async with open_store(f'sqlite:///{path}') as store:
        found = await store.check()
    path.write_bytes(data)
    return found if changed else [Damage(table=None, row=None, problem='the statement changed nothing')]


async def test_every_changed_value_is_reported(tmp_path: Path) -> None:
    """If any value in any row was changed, a check reports it."""
    await make_sample(tmp_path / 'agents.db')
    by_column = {each.partition(' WHERE')[0].rpartition(' = ')[0]: each for each in changes(tmp_path / 'agents.db')}
    assert len(by_column) > 100
    for column, statement in by_column.items():
        if not column.endswith('SET number'):  # has no effect by itself
            assert await _check(tmp_path / 'agents.db', statement), statement


async def test_every_missing_row_is_reported(tmp_path: Path) -> None:
    """If any row of any table is missing, a check reports it."""
    await make_sample(tmp_path / 'agents.db')
    statements = list(deletions(tmp_path / 'agents.db'))
    assert len(statements) > 50
    for statement in statements:
        assert await _check(tmp_path / 'agents.db', statement), statement


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


async def test_check_of_damaged_pages_continues_with_other_tables(tmp_path: Path) -> None:
    """An unreadable page is reported together with other damage."""
    path = tmp_path / 'agents.db'
    await make_sample(path)
    with closing(sqlite3.connect(path)) as raw:
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'message'").fetchone()
        (size,) = raw.execute('PRAGMA page_size').fetchone()
        raw.execute('UPDATE run SET started_at = started_at + 1 WHERE number = 1')
        raw.commit()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : page * size] = b'\xff' * size
    path.write_bytes(data)
    async with open_store(f'sqlite:///{path}') as store:
        tables = {damage.table for damage in await store.check()}
    assert {None, 'message', 'run'} <= tables


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


async def test_wrong_count_is_reported(tmp_path: Path) -> None:
    """A count of a run, conversation or version that is too high, too low or not a number is reported, together with
    other damage.
    """
    await make_sample(tmp_path / 'agents.db')
    for table in ('run', 'request', 'tool_call', 'edge', 'version', 'reference'):
        of_one = "parent <> x''" if table != 'reference' else '1 = 1'
        for total in ('total + 1', 'total - 1', "'many'"):
            found = await _check(
                tmp_path / 'agents.db', f"UPDATE tally SET total = {total} WHERE name = '{table}' AND {of_one}"
            )
            assert [damage.table for damage in found] == [table], (table, total, found)


@pytest.mark.parametrize(
    ('table', 'statement'),
    [
        ('branch', "UPDATE branch SET tip_seq = 'ten'"),
        ('request', "UPDATE request SET number = 'one' WHERE number = 1"),
        ('reference', 'UPDATE reference SET kind = 9'),
        ('reference', 'UPDATE reference SET source = source + 1000000'),
    ],
)
async def test_value_of_another_type_is_reported(tmp_path: Path, table: str, statement: str) -> None:
    """A check reports values that it cannot process as damage of their table, instead of failing."""
    await make_sample(tmp_path / 'agents.db')
    assert table in {damage.table for damage in await _check(tmp_path / 'agents.db', statement)}


async def test_garbage_collection_is_refused_if_rows_are_missing(tmp_path: Path) -> None:
    """Targets of a missing row would look like garbage, so a collection raises and removes nothing."""
    await make_sample(tmp_path / 'agents.db')
    for statement in ('DELETE FROM reference', 'DELETE FROM entry WHERE seq = 0', 'DELETE FROM edge'):
        data = (tmp_path / 'agents.db').read_bytes()
        with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
            assert raw.execute(statement).rowcount
            raw.commit()
        async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
            with pytest.raises(StoreCorruptedError, match='rows were written'):
                await store.gc(0)
        (tmp_path / 'agents.db').write_bytes(data)


async def test_damaged_schema_is_reported_as_damage(tmp_path: Path) -> None:
    """A column or table that is missing from the database is damage, and reopening the store is not suggested."""
    await make_sample(tmp_path / 'agents.db')
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        raw.execute('ALTER TABLE asset RENAME COLUMN digest TO diges')
    async with open_store(f'sqlite:///{tmp_path}/agents.db', read_only=True) as store:
        with pytest.raises(StoreCorruptedError, match='no such column'):
            await store.versions()
        assert {'asset', 'version'} <= {damage.table for damage in await store.check()}
