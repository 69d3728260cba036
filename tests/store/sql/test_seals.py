"""Damage is an error that names the table and the row, and never an answer."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import StoreCorruptedError, VersionFilter, new_id, open_store
from pydantic_deep.store._samples import Dialogue, sample_run
from tests.store.damage import (
    Sample,
    answers_of,
    changes,
    deletions,
    forget_identity,
    make_sample,
    set_back,
    wrong_answers,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sample(tmp_path: Path) -> Sample:
    return await make_sample(tmp_path / 'agents.db')


async def _right_answers(sample: Sample) -> dict[str, object]:
    """Return the answers of a copy of a store, which are those of any other."""
    copy = sample.path.with_name('right.db')
    shutil.copy(sample.path, copy)
    return await answers_of(sample, copy)


async def _wrong_after(sample: Sample, right: Mapping[str, object], statement: str) -> dict[str, object]:
    """Return the wrong answers of a copy of a store that was damaged by a statement."""
    copy = sample.path.with_name('copy.db')
    shutil.copy(sample.path, copy)
    with closing(sqlite3.connect(copy)) as raw:
        raw.execute(statement)
        raw.commit()
    return wrong_answers(right, await answers_of(sample, copy))


def _few(statements: list[str]) -> list[str]:
    """Return some of the statements, at least one for each column of each table."""
    random.Random(7).shuffle(statements)
    return list({statement.partition(' WHERE')[0].rpartition(' = ')[0]: statement for statement in statements}.values())


_FILTERS = (
    *('approval SET status', 'approval SET expires_at', 'run SET state', 'delegation SET child_conversation_id'),
    *('config_field', 'config SET folded_name', 'version SET config', 'version SET number', 'conversation SET number'),
)
"""Columns by which lists over a whole store find their rows: one that left such a list is found by `check` alone."""


def _is_in_a_list(statement: str) -> bool:
    return any(f'UPDATE OR IGNORE {each}' in statement for each in _FILTERS)


async def test_a_changed_value_is_an_error_and_never_an_answer(sample: Sample) -> None:
    """Whatever value of whatever row is not the one that was written: every read gives the right answer or
    `StoreCorruptedError`."""
    right = await _right_answers(sample)
    for statement in _few([each for each in changes(sample.path) if not _is_in_a_list(each)]):
        assert await _wrong_after(sample, right, statement) == {}, statement


@pytest.mark.slow
async def test_any_changed_value_is_an_error_and_never_an_answer(sample: Sample) -> None:
    """The same for every value of every row, changed in each way."""
    right = await _right_answers(sample)
    for statement in [each for each in changes(sample.path) if not _is_in_a_list(each)]:
        assert await _wrong_after(sample, right, statement) == {}, statement


async def test_a_missing_row_is_an_error_and_never_an_answer(sample: Sample) -> None:
    """Whatever row of whatever table is gone: no read returns what is left, or that nothing was there."""
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
async def test_sql_refuses_what_is_damaged(sample: Sample, statement: str, table: str) -> None:
    """The replica takes no row that is not what was written, and none of a store in which one is missing."""
    with closing(sqlite3.connect(sample.path)) as raw:
        raw.execute(statement)
        raw.commit()
    async with open_store(f'sqlite:///{sample.path}') as store:
        for _ in range(2):
            with pytest.raises(StoreCorruptedError) as caught:
                await store.sql('SELECT 1')
            assert caught.value.table == table


async def test_sql_takes_a_store_that_is_whole_and_checks_what_is_new(sample: Sample) -> None:
    async with open_store(f'sqlite:///{sample.path}') as store:
        assert (await store.sql('SELECT COUNT(*) FROM versions')).to_dicts() == [{'count_star()': await store.count()}]
        await Dialogue(store).begin()
        with closing(sqlite3.connect(sample.path)) as raw:
            raw.execute("UPDATE version SET kind = 'merge' WHERE number = (SELECT MAX(number) FROM version)")
            raw.commit()
        with pytest.raises(StoreCorruptedError) as caught:
            await store.sql('SELECT 1')
        assert (caught.value.table, caught.value.row) == ('version', '7')


async def test_deletion_and_garbage_collection_keep_the_counts(tmp_path: Path) -> None:
    """What was deleted on purpose is not missed."""
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


async def test_an_error_of_damage_names_the_table_and_the_row(tmp_path: Path) -> None:
    """The error says which row of which table is damaged, and what finds the rest."""
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
        "UPDATE meta SET value = '9' WHERE key = 'version'",
        "UPDATE meta SET value = 'x' WHERE key = 'version'",
        "DELETE FROM meta WHERE key = 'version'",
        'DELETE FROM meta',
    ],
)
async def test_a_damaged_mark_of_the_store_is_damage(sample: Sample, statement: str) -> None:
    """A store whose format and version are damaged is not taken for something else, or for another release's."""
    with closing(sqlite3.connect(sample.path)) as raw:
        raw.execute(statement)
        raw.commit()
    with pytest.raises(StoreCorruptedError) as caught:
        async with open_store(f'sqlite:///{sample.path}'):
            pass
    assert caught.value.table == 'meta'


async def test_a_damaged_header_is_damage_of_a_store_that_was_there(sample: Sample) -> None:
    """A file that was a store and is no database any more is damaged, and not somebody else's."""
    data = bytearray(sample.path.read_bytes())
    data[0] ^= 1
    sample.path.write_bytes(data)
    with pytest.raises(StoreCorruptedError, match='no longer a SQLite database'):
        async with open_store(f'sqlite:///{sample.path}'):
            pass


async def test_an_index_that_does_not_list_a_row_is_damage(sample: Sample) -> None:
    """A look-up by a damaged index does not say that nothing is there."""
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


async def test_text_that_is_no_text_is_damage(sample: Sample) -> None:
    """Text that is no UTF-8 any more is damage, whoever decodes it."""
    with closing(sqlite3.connect(sample.path)) as raw:
        raw.execute("UPDATE conversation SET agent_name = CAST(x'ff' AS TEXT)")
        raw.commit()
    found = await answers_of(sample, sample.path)
    assert isinstance(found['conversation 0'], StoreCorruptedError)


async def test_a_store_without_seals_gets_them_when_it_is_opened(sample: Sample) -> None:
    """A store of an older release is brought up to date: it answers as before, and its damage is found from then on."""
    await forget_identity(sample.path)
    right = await answers_of(sample, sample.path)
    with closing(sqlite3.connect(sample.path)) as raw:
        for sql in set_back(1):
            raw.execute(sql)
        raw.commit()
    assert await answers_of(sample, sample.path) == right
    statement = 'UPDATE run SET started_at = started_at + 1'
    with closing(sqlite3.connect(sample.path)) as raw:
        raw.execute(statement)
        raw.commit()
    assert isinstance((await answers_of(sample, sample.path))['run 0'], StoreCorruptedError)


async def test_the_versions_of_a_run_and_of_a_conversation_are_counted(tmp_path: Path) -> None:
    """A version that is gone is missed by every list of its run or its conversation, filtered or not, and by their
    counts: the steps of a turn are such a list."""
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
        assert await store.count() == 5  # what was whole when all was counted may be damaged since
        with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
            assert raw.execute("DELETE FROM version WHERE kind = 'step'").rowcount == 1
            raw.commit()
        for filter in filters:
            for read in (store.versions(filter), store.versions(filter, offset=1), store.count(filter)):
                with pytest.raises(StoreCorruptedError, match='3 rows were written, and 2 exist'):
                    await read
        assert await store.count(VersionFilter(conversation_id=other.id)) == 2
        assert await store.versions(VersionFilter(run_id=new_id())) == []
