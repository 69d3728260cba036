"""Damage raises an error that names the table and the row, and never returns a wrong result."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep.store import StoreCorruptedError, open_store
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.sql._rows import entry_seal, message_seal
from pydantic_deep.store.sql._seals import row_name, seal
from tests.store.damage import Sample, answers_of, changes, deletions, make_sample, wrong_answers

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sample(tmp_path: Path) -> Sample:
    return await make_sample(tmp_path / 'agents.db')


async def _right_answers(sample: Sample) -> dict[str, object]:
    """Return the answers of an undamaged copy of a store."""
    copy = sample.path.with_name('right.db')
    shutil.copy(sample.path, copy)
    return await answers_of(sample, copy)


async def _wrong_after(sample: Sample, right: Mapping[str, object], statement: str) -> dict[str, object]:
    """Return the wrong answers of a copy of a store after a damaging statement."""
    copy = sample.path.with_name('copy.db')
    shutil.copy(sample.path, copy)
    with closing(sqlite3.connect(copy)) as raw:
        raw.execute(statement)
        raw.commit()
    return wrong_answers(right, await answers_of(sample, copy))


def _few(statements: list[str]) -> list[str]:
    """Return a sample of the statements, at least one for each column of each table."""
    random.Random(7).shuffle(statements)
    return list({statement.partition(' WHERE')[0].rpartition(' = ')[0]: statement for statement in statements}.values())


_FILTERS = (
    *('approval SET status', 'approval SET expires_at', 'run SET state', 'delegation SET child_conversation_id'),
    *('config_field', 'config SET folded_name', 'version SET config', 'version SET number', 'conversation SET number'),
)
"""Columns that lists over a whole store filter by. Only `check` finds a row that is missing from such a list."""


def _is_in_a_list(statement: str) -> bool:
    return any(f'UPDATE OR IGNORE {each}' in statement for each in _FILTERS)


@pytest.mark.slow
async def test_changed_value_raises_and_is_never_returned(sample: Sample) -> None:
    """If any value in any row was changed, every read returns the right result or raises `StoreCorruptedError`."""
    right = await _right_answers(sample)
    for statement in _few([each for each in changes(sample.path) if not _is_in_a_list(each)]):
        assert await _wrong_after(sample, right, statement) == {}, statement


@pytest.mark.slow
async def test_every_changed_value_raises_and_is_never_returned(sample: Sample) -> None:
    """The same for every value of every row, changed in each way."""
    right = await _right_answers(sample)
    for statement in [each for each in changes(sample.path) if not _is_in_a_list(each)]:
        assert await _wrong_after(sample, right, statement) == {}, statement


@pytest.mark.slow
async def test_missing_row_raises_instead_of_an_incomplete_result(sample: Sample) -> None:
    """If any row of any table is missing, no read returns an incomplete or empty result."""
    right = await _right_answers(sample)
    statements = list(deletions(sample.path))
    assert len(statements) > 50
    for statement in statements:
        assert await _wrong_after(sample, right, statement) == {}, statement


@pytest.mark.parametrize(
    ('statement', 'table'),
    [
        ('DELETE FROM version WHERE number = 2', 'version'),
        ('DELETE FROM message WHERE number = 2', 'message'),
        ('DELETE FROM entry WHERE seq = 3', 'entry'),
        ('DELETE FROM config', 'config'),
        ('DELETE FROM request WHERE number = 2', 'request'),
        ("UPDATE version SET usage = '{}' WHERE number = 3", 'version'),
        ("UPDATE config SET model_settings = '{}'", 'version'),
        ("UPDATE message SET body = x'00ff' WHERE number = 2", 'message'),
        ('UPDATE entry SET message = 1 WHERE seq = 2', 'entry'),
        ('UPDATE entry SET seq = 70 WHERE seq = 2', 'entry'),
        ('UPDATE entry SET message = 70 WHERE seq = 2', 'message'),
        ("UPDATE run SET cost = '9'", 'run'),
        ('UPDATE request SET input_tokens = input_tokens + 1 WHERE number = 3', 'request'),
        ("UPDATE tool_call SET tool_name = 'x'", 'tool_call'),
        ("UPDATE approval SET status = 'approved'", 'approval'),
        ("UPDATE delegation SET intent = 'x'", 'delegation'),
        ("UPDATE conversation SET agent_name = 'x'", 'conversation'),
        ("UPDATE branch SET name = 'x' WHERE number = 1", 'version'),
        ("UPDATE asset SET data = x'00'", 'asset'),
        ("UPDATE node SET data = x'00'", 'node'),
    ],
)
async def test_sql_refuses_a_damaged_store(sample: Sample, statement: str, table: str) -> None:
    """The replica accepts no changed row, and no store with a missing row."""
    with closing(sqlite3.connect(sample.path)) as raw:
        raw.execute(statement)
        raw.commit()
    async with open_store(f'sqlite:///{sample.path}') as store:
        for _ in range(2):
            with pytest.raises(StoreCorruptedError) as caught:
                await store.sql('SELECT 1')
            assert caught.value.table == table


async def test_sql_accepts_an_undamaged_store_and_checks_new_rows(sample: Sample) -> None:
    async with open_store(f'sqlite:///{sample.path}') as store:
        assert (await store.sql('SELECT COUNT(*) FROM versions')).to_dicts() == [{'count_star()': await store.count()}]
        await Dialogue(store).begin()
        with closing(sqlite3.connect(sample.path)) as raw:
            raw.execute("UPDATE version SET kind = 'merge' WHERE number = (SELECT MAX(number) FROM version)")
            raw.commit()
        with pytest.raises(StoreCorruptedError) as caught:
            await store.sql('SELECT 1')
        assert (caught.value.table, caught.value.row) == ('version', '7')


async def test_damage_error_names_the_table_and_the_row(tmp_path: Path) -> None:
    """The error names the damaged row and its table, and the command that finds further damage."""
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        dialogue = Dialogue(store)
        turn = await dialogue.add(await dialogue.begin(), b'{"first":1}', b'{"second":2}')
        second = (await store.messages(turn.branch_id, 2))[1]
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        raw.execute("UPDATE message SET body = x'00ff' WHERE number = 2")
        raw.commit()
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        with pytest.raises(StoreCorruptedError, match='pydantic-deep store check') as caught:
            await store.messages(turn.branch_id, 2)
    assert (caught.value.table, caught.value.row) == ('message', second.id)


@pytest.mark.parametrize(
    'statement',
    [
        "UPDATE meta SET value = 'pydantic-deep stork' WHERE key = 'format'",
        "UPDATE meta SET value = '1' WHERE key = 'version'",
        "UPDATE meta SET value = '99' WHERE key = 'version'",
        "UPDATE meta SET value = 'x' WHERE key = 'version'",
        "DELETE FROM meta WHERE key = 'version'",
        'DELETE FROM meta',
    ],
)
async def test_damaged_format_or_version_is_reported_as_damage(sample: Sample, statement: str) -> None:
    """A store with a damaged format or version is not mistaken for another format or a newer release."""
    with closing(sqlite3.connect(sample.path)) as raw:
        raw.execute(statement)
        raw.commit()
    with pytest.raises(StoreCorruptedError) as caught:
        async with open_store(f'sqlite:///{sample.path}'):
            pass
    assert caught.value.table == 'meta'


async def test_damaged_header_of_a_store_is_reported_as_damage(sample: Sample) -> None:
    """A store file that is no longer a database is damaged, not a foreign file."""
    data = bytearray(sample.path.read_bytes())
    data[0] ^= 1
    sample.path.write_bytes(data)
    with pytest.raises(StoreCorruptedError, match='no longer a SQLite database'):
        async with open_store(f'sqlite:///{sample.path}'):
            pass


async def test_row_missing_from_an_index_is_reported_as_damage(sample: Sample) -> None:
    """A lookup with a damaged index does not report a missing row as not found."""
    with closing(sqlite3.connect(sample.path)) as raw:
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_run_1'").fetchone()
        (size,) = raw.execute('PRAGMA page_size').fetchone()
        ids = [row[0] for row in raw.execute('SELECT id FROM run')]
    data = bytearray(sample.path.read_bytes())
    for id in ids:
        place = data.index(id, (page - 1) * size, page * size)
        data[place + 15] ^= 1
    sample.path.write_bytes(data)
    found = await answers_of(sample, sample.path)
    assert isinstance(found['run 0'], StoreCorruptedError)
    assert isinstance(found['run 1'], StoreCorruptedError)


async def test_invalid_utf8_is_reported_as_damage(sample: Sample) -> None:
    """Text that is no longer valid UTF-8 is damage, wherever it is decoded."""
    with closing(sqlite3.connect(sample.path)) as raw:
        raw.execute("UPDATE conversation SET agent_name = CAST(x'ff' AS TEXT)")
        raw.commit()
    found = await answers_of(sample, sample.path)
    assert isinstance(found['conversation 0'], StoreCorruptedError)


@pytest.mark.parametrize(('key', 'name'), [('c1', 'c1'), (7, '7'), (b'\2\xff', '02ff')])
def test_key_that_is_not_an_id_is_still_named(key: Any, name: str) -> None:
    assert row_name(key) == name


def test_seal_does_not_change_between_releases() -> None:
    """The seal of a row never changes, not even if a field is added that old rows have as `None`."""
    assert seal(('a', 1, None, 'b')) == 2359383764
    assert seal(('a', 1, None, 'b', None)) == 2359383764
    assert entry_seal('branch', 3, 'message') == seal(('branch', 3, 'message'))
    assert message_seal('id', b'') == seal(('id',))
