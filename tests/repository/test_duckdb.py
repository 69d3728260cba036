"""Repository in a DuckDB file (004-08)."""

from __future__ import annotations

import asyncio
import importlib
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pytest
from pydantic import BaseModel, create_model

from pydantic_deep.repository import (
    InvalidFieldError,
    Repository,
    RepositoryFormatError,
    RepositoryUnavailableError,
    UnreadableRowError,
    Upsert,
)
from pydantic_deep.repository.conformance import OpenRepository, RepositorySuite
from pydantic_deep.repository.duckdb import _SETTINGS, DuckdbRepository, _Database  # pyright: ignore[reportPrivateUsage]

T = TypeVar('T', bound=BaseModel)

pytestmark = pytest.mark.anyio


class TestDuckdbRepository(RepositorySuite):
    """004-08: DuckDB."""

    @pytest.fixture
    async def open_repository(self, tmp_path: Path) -> AsyncIterator[OpenRepository]:
        async with AsyncExitStack() as stack:

            async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
                path = tmp_path / 'rows.duckdb'
                return await stack.enter_async_context(await DuckdbRepository.open(path, model, key=key, fields=fields))

            yield open_one


class Event(BaseModel):
    """A row with one field of each kind that has its own column type."""

    id: str
    at: datetime | None = None
    is_good: bool = True
    score: float = 0.0


FIELDS = ('at', 'is_good', 'score')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / 'rows.duckdb'


async def test_memory_database_is_not_shared_between_repositories(path: Path) -> None:
    async with await DuckdbRepository.open(':memory:', Event) as events:
        await events.create(Event(id='a'))
    async with await DuckdbRepository.open(':memory:', Event) as events:
        assert await events.count() == 0


async def test_thousand_changes_are_applied_in_one_transaction(path: Path) -> None:
    async with await DuckdbRepository.open(path, Event, fields=FIELDS) as events:
        await events.create(Event(id='5', score=-1.0))
        await events.apply([Upsert(Event(id=str(number), score=number)) for number in range(1000)])
        assert await events.count() == 1000
        assert [event.id for event in (await events.list(order_by='-score', limit=2)).items] == ['999', '998']
        assert (await events.get('5')).score == 5.0


async def test_page_is_consistent_while_another_repository_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """004-08: rows with null in the ordering field are read by a separate statement."""
    async with await DuckdbRepository.open(path, Event, fields=FIELDS) as one:
        await one.upsert(Event(id='a', score=1))
        await one.upsert(Event(id='b', at=datetime(2026, 1, 1, tzinfo=UTC)))
        moved = 0
        execute = _Database._execute  # pyright: ignore[reportPrivateUsage] - the moment between two statements

        def move(self: _Database, statement: Any) -> Any:
            nonlocal moved
            rows = execute(self, statement)
            if statement.sql.startswith('SELECT') and 'IS NULL' in statement.sql:
                moved += 1
                with duckdb.connect(path, config=_SETTINGS) as other:
                    other.execute("UPDATE event SET \"at\" = TIMESTAMP '2027-01-01' WHERE id = 'a'")
            return rows

        monkeypatch.setattr(_Database, '_execute', move)
        page = await one.list(order_by='at')

    assert ([row.id for row in page.items], moved) == (['a', 'b'], 1)


async def test_repositories_of_one_file_serialize_their_writes(path: Path) -> None:
    async with (
        await DuckdbRepository.open(path, Event, fields=FIELDS) as one,
        await DuckdbRepository.open(path, Event, fields=FIELDS) as other,
    ):

        async def write(number: int) -> None:
            await (one if number % 2 else other).upsert(Event(id='a', score=number))

        await asyncio.gather(*map(write, range(20)))
        (row,) = (await one.list()).items
        assert row == await other.get('a')


async def test_replaced_table_refuses_repositories_with_the_old_fields(path: Path) -> None:
    async with await DuckdbRepository.open(path, Event, fields=('score',)) as old:
        await old.create(Event(id='a', score=2.0))
        async with await DuckdbRepository.open(path, Event, fields=FIELDS) as new:
            for asked in (old.create(Event(id='b')), old.get('a')):
                with pytest.raises(RepositoryUnavailableError, match='the same fields'):
                    await asked
            assert [event.id for event in (await new.list({'is_good': True, 'score': 2.0})).items] == ['a']


async def test_foreign_table_is_not_touched(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute('CREATE TABLE event AS SELECT 1 AS id')
    with pytest.raises(RepositoryFormatError, match='another `name`'):
        await DuckdbRepository.open(path, Event)
    with duckdb.connect(str(path)) as connection:
        assert connection.execute('FROM event').fetchall() == [(1,)]


async def test_table_with_another_key_is_refused(path: Path) -> None:
    model = create_model('Event', id=str, other=str)
    async with await DuckdbRepository.open(path, model, key='other', fields=('id',)) as events:
        await events.create(model(id='a', other='b'))
    with pytest.raises(InvalidFieldError, match="the key 'other'"):
        await DuckdbRepository.open(path, model, fields=('other',))


@pytest.mark.parametrize('name', ['', '1', 'A', 'a b', '../up', 'x"; DROP TABLE y; --', 'x' * 64])
async def test_invalid_table_name_is_refused(path: Path, name: str) -> None:
    with pytest.raises(ValueError, match='not a valid table name'):
        await DuckdbRepository.open(path, Event, name=name)
    assert not path.exists()


async def test_file_opened_by_another_process_is_refused(path: Path) -> None:
    program = (
        'import duckdb, sys\n'
        'connection = duckdb.connect(sys.argv[1])\n'
        'connection.execute("CREATE TABLE t(a INTEGER)")\n'
        'print("open", flush=True)\n'
        'sys.stdin.read()'
    )
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs
        [sys.executable, '-c', program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == 'open\n'
        with pytest.raises(RepositoryUnavailableError, match='Only one process at a time'):
            await DuckdbRepository.open(path, Event)
        other.communicate()
    async with await DuckdbRepository.open(path, Event) as events:
        assert await events.count() == 0


async def test_missing_directory_raises_unavailable(tmp_path: Path) -> None:
    with pytest.raises(RepositoryUnavailableError, match='directory'):
        await DuckdbRepository.open(tmp_path / 'none' / 'rows.duckdb', Event)


@pytest.mark.parametrize('kind', ['empty', 'text', 'sqlite', 'directory'])
async def test_file_that_is_not_a_duckdb_database_is_refused_unchanged(path: Path, kind: str) -> None:
    """DuckDB itself would open an SQLite file through its SQLite extension."""
    if kind == 'directory':
        path.mkdir()
    elif kind == 'sqlite':
        connection = sqlite3.connect(path)
        connection.execute('CREATE TABLE t(a)')
        connection.close()
    else:
        path.write_bytes(b'' if kind == 'empty' else b'hello, world' * 1000)
    before = path.read_bytes() if path.is_file() else None
    expected = RepositoryUnavailableError if kind == 'directory' else RepositoryFormatError
    with pytest.raises(expected, match=r'rows\.duckdb'):
        await DuckdbRepository.open(path, Event)
    assert (path.read_bytes() if path.is_file() else None) == before


async def test_damaged_file_raises_unavailable(path: Path) -> None:
    async with await DuckdbRepository.open(path, Event) as events:
        await events.create(Event(id='a'))
    content = bytearray(path.read_bytes())
    content[4096:12288] = bytes(8192)  # the two headers of the database
    path.write_bytes(content)
    with pytest.raises(RepositoryUnavailableError, match='cannot be opened'):
        await DuckdbRepository.open(path, Event)


async def test_failed_write_raises_and_keeps_the_rows(path: Path) -> None:
    async with await DuckdbRepository.open(path, Event) as events:
        await events.create(Event(id='a'))
    wal = path.with_name('rows.duckdb.wal')
    async with await DuckdbRepository.open(path, Event) as events:
        wal.mkdir()  # DuckDB has to write it before it answers
        with pytest.raises(RepositoryUnavailableError, match='cannot be written'):
            await events.create(Event(id='b'))
        wal.rmdir()
        assert [event.id for event in (await events.list()).items] == ['a']
        await events.create(Event(id='b'))
        assert await events.count() == 2


async def test_damage_while_the_file_is_open_raises_unavailable(path: Path) -> None:
    async with await DuckdbRepository.open(path, Event) as events:
        await events.create(Event(id='a'))
    content = path.read_bytes()
    async with await DuckdbRepository.open(path, Event) as events:
        with path.open('r+b') as file:
            file.seek(12288)  # behind the headers
            file.write(bytes(len(content) - 12288))
        with pytest.raises(RepositoryUnavailableError, match='cannot be read'):
            await events.list()
    path.write_bytes(content)
    async with await DuckdbRepository.open(path, Event) as events:
        assert await events.count() == 1


async def test_unreadable_row_is_not_lost_when_its_table_is_migrated(path: Path) -> None:
    first = create_model('Thing', id=str, size=(int | None, None))
    async with await DuckdbRepository.open(path, first) as old:
        await old.create(first(id='a'))
    with pytest.raises(UnreadableRowError, match="'size'"):
        await DuckdbRepository.open(path, create_model('Thing', id=str, size=int), fields=('size',))
    async with await DuckdbRepository.open(path, first) as old:
        assert await old.count() == 1


def test_import_without_the_extra_suggests_installing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'duckdb', None)
    monkeypatch.delitem(sys.modules, 'pydantic_deep.repository.duckdb')
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'versioned-deep-agents\[duckdb\]'"):
        importlib.import_module('pydantic_deep.repository.duckdb')
