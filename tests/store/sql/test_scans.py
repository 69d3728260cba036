"""Scans of whole tables report damaged rows and pages."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import StoreCorruptedError, open_store
from tests.store.damage import Sample, answers_of, check_after, forget_identity, make_sample, set_back

pytestmark = pytest.mark.anyio


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
    assert table in {damage.table for damage in await check_after(tmp_path / 'agents.db', statement)}


@pytest.fixture
async def sample(tmp_path: Path) -> Sample:
    return await make_sample(tmp_path / 'agents.db')


async def test_store_without_seals_gets_them_when_it_is_opened(sample: Sample) -> None:
    """A migrated store of an older release returns the same results, and later damage is detected."""
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
