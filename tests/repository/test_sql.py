"""SQL repositories only: schema changes, several processes, sharing a store's database, and refusals when opening."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, create_model

from pydantic_deep.repository import (
    Create,
    In,
    InvalidFieldError,
    InvalidRowError,
    Repository,
    RepositoryClosedError,
    RepositoryFormatError,
    RepositoryUnavailableError,
    RowExistsError,
    SqlRepository,
    SupportsTransactions,
    UnreadableRowError,
    open_repository,
)
from pydantic_deep.repository._table import table_name
from pydantic_deep.store import StoreFormatError, new_id, open_store
from pydantic_deep.store.engine import Operation
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.store.sqlite import SqliteEngine

pytestmark = pytest.mark.anyio

R = TypeVar('R')


class Person(BaseModel):
    id: str
    name: str
    born: int | None = None


def tables_of(path: Path) -> dict[str, list[str]]:
    """Return the columns of each table, read directly from the file."""
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [row[1] for row in connection.execute(f'PRAGMA table_info({name})')] for name in names}


def indexes_of(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT name FROM sqlite_master WHERE type = 'index' AND name LIKE 'by\\_c%' ESCAPE '\\' ORDER BY name"
        return [name for (name,) in connection.execute(sql)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / 'rows.db'


@pytest.fixture
def url(path: Path) -> str:
    return f'sqlite:///{path}'


# Location


async def test_sql_repository_supports_transactions() -> None:
    async with open_repository('memory:', Person) as people:
        assert isinstance(people, Repository)
        assert isinstance(people, SupportsTransactions)


async def test_rows_can_be_stored_in_the_database_of_a_store(tmp_path: Path) -> None:
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        people = await SqlRepository.open(store, Person, fields=('name',))
        await people.create(Person(id='a', name='Ada'))
        assert await store.count() == 0
        await people.aclose()
        again = await SqlRepository.open(store.engine, Person, fields=('name',))
        assert await again.get('a') == Person(id='a', name='Ada')
    async with open_repository(f'sqlite:///{tmp_path}/agents.db', Person, fields=('name',)) as alone:
        assert await alone.count({'name': 'Ada'}) == 1


async def test_separate_file_has_no_tables_of_a_store(path: Path, url: str) -> None:
    async with open_repository(url, Person, fields=('born',)):
        pass
    assert tables_of(path) == {
        'meta': ['key', 'value'],
        'repository': ['name', 'key_field', 'key_kind', 'layout'],
        'rows_person': ['key', 'body', 'c1'],
    }
    assert indexes_of(path) == ['by_c1_rows_person']


async def test_store_refuses_a_repository_file_and_names_its_format(url: str) -> None:
    async with open_repository(url, Person):
        pass
    with pytest.raises(StoreFormatError, match="format is 'pydantic-deep repository', not 'pydantic-deep store'"):
        async with open_store(url):
            pass


async def test_store_refuses_a_repository_database_and_names_its_format(new_postgres_url: Callable[[], str]) -> None:
    url = new_postgres_url()
    async with open_repository(url, Person):
        pass
    with pytest.raises(StoreFormatError, match="format is 'pydantic-deep repository'"):
        async with open_store(url):
            pass


async def test_named_memory_database_is_shared_with_a_store() -> None:
    url = f'memory:{new_id()}'
    async with open_repository(url, Person) as people, open_store(url) as store:
        await people.create(Person(id='a', name='Ada'))
        assert await (await SqlRepository.open(store, Person)).count() == 1


@pytest.mark.parametrize(
    ('statements', 'message'),
    [
        ('CREATE TABLE users (id)', "a table 'users'"),
        ("CREATE TABLE meta (key, value); INSERT INTO meta VALUES ('format', 'other')", "format is 'other'"),
        ('CREATE TABLE meta (key, value)', 'format is None'),
    ],
)
async def test_foreign_database_is_refused_unchanged(path: Path, url: str, statements: str, message: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
    before = path.read_bytes()
    with pytest.raises(RepositoryFormatError, match=message):
        async with open_repository(url, Person):
            pass
    assert path.read_bytes() == before


async def test_missing_directory_of_a_sqlite_file_raises_unavailable(tmp_path: Path) -> None:
    with pytest.raises(RepositoryUnavailableError, match=r'missing/rows\.db'):
        async with open_repository(f'sqlite:///{tmp_path}/missing/rows.db', Person):
            pass


async def test_invalid_url_is_refused() -> None:
    with pytest.raises(ValueError, match=r'sqlite:////srv/agents\.db'):
        async with open_repository('mysql://host/db', Person):
            pass


async def test_invalid_fields_or_name_are_refused_before_a_file_is_created(path: Path, url: str) -> None:
    with pytest.raises(InvalidFieldError):
        async with open_repository(url, Person, fields=('none',)):
            pass
    with pytest.raises(ValueError, match='not a valid table name'):
        async with open_repository(url, Person, name='x; DROP TABLE meta'):
            pass
    assert not path.exists()


async def test_store_without_an_engine_is_refused() -> None:
    class Elsewhere:
        engine = 'a file of text'

    for place in (Elsewhere(), object()):
        with pytest.raises(TypeError, match='has no SQL database'):
            await SqlRepository.open(place, Person)  # pyright: ignore[reportArgumentType] - that is the point


async def test_closed_engine_raises_repository_closed() -> None:
    engine = MemoryEngine.open()
    people = await SqlRepository.open(engine, Person)
    await engine.aclose()
    with pytest.raises(RepositoryClosedError, match='database'):
        await people.count()


async def test_dropped_table_raises_unavailable(path: Path, url: str) -> None:
    async with open_repository(url, Person) as people:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute('DROP TABLE rows_person')
        with pytest.raises(RepositoryUnavailableError, match='no such table'):
            await people.count()


# Names


@pytest.mark.parametrize(
    ('model', 'name'),
    [('Person', 'person'), ('ApiKey', 'api_key'), ('HTTPRequest', 'http_request'), ('Row2Col', 'row2_col')],
)
def test_table_name_is_derived_from_the_model(model: str, name: str) -> None:
    assert table_name(model, None) == name


@pytest.mark.parametrize('name', ['', 'A', '1a', '_a', 'a-b', 'a b', 'a"', 'é', 'x' * 49, 'a;', 'a\n', 'Box[int]'])
def test_invalid_table_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match='Pass `name=`'):
        table_name('Person', name)


async def test_rows_of_one_model_may_be_stored_under_several_names(url: str) -> None:
    async with (
        open_repository(url, Person, name='guests') as guests,
        open_repository(url, Person, name='x' * 48, fields=('name',)) as others,
    ):
        await guests.create(Person(id='a', name='Ada'))
        assert await others.count() == 0


@pytest.mark.parametrize('name', ['store', 'version', 'meta', 'repository', 'rows', 'sqlite_master'])
async def test_table_names_do_not_collide_with_tables_of_a_store(tmp_path: Path, name: str) -> None:
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        people = await SqlRepository.open(store, Person, name=name)
        await people.create(Person(id='a', name='Ada'))
        assert await store.count() == 0
        assert await people.count() == 1


# Schema changes


def places(path: Path, new_postgres_url: Callable[[], str]) -> list[str]:
    return [f'sqlite:///{path}', new_postgres_url()]


async def test_added_column_is_filled_for_all_rows(
    path: Path, new_postgres_url: Callable[[], str]
) -> None:  # fmt: skip
    for url in places(path, new_postgres_url):
        async with open_repository(url, Person, fields=('born',)) as people:
            await people.apply([Create(Person(id=f'{at:04}', name=f'n{at % 7}', born=at)) for at in range(1203)])
        async with open_repository(url, Person, fields=('born', 'name')) as people:
            assert [await people.count({'name': f'n{at}'}) for at in range(7)] == [172] * 6 + [171]
            assert await people.count({'born': 700, 'name': 'n0'}) == 1


async def test_repository_fills_columns_declared_by_others(path: Path, new_postgres_url: Callable[[], str]) -> None:
    for url in places(path, new_postgres_url):
        async with open_repository(url, Person, fields=('born', 'name')) as more:
            async with open_repository(url, Person) as less:
                await less.create(Person(id='a', name='Ada', born=1815))
            assert await more.count({'name': 'Ada', 'born': 1815}) == 1


async def test_earlier_repository_fills_columns_added_later(path: Path, new_postgres_url: Callable[[], str]) -> None:
    for url in places(path, new_postgres_url):
        async with open_repository(url, Person) as first, open_repository(url, Person, fields=('born',)) as second:
            await first.create(Person(id='a', name='Ada', born=1815))
            await first.upsert(Person(id='b', name='Bob', born=1900))
            assert [row.id for row in (await second.list(order_by='-born')).items] == ['b', 'a']
            with pytest.raises(RowExistsError):
                await first.create(Person(id='a', name='Ada'))


async def test_order_of_fields_does_not_change_the_table(path: Path, url: str) -> None:
    async with open_repository(url, Person, fields=('born', 'name')):
        before = tables_of(path), path.read_bytes()
        async with open_repository(url, Person, fields=('name', 'born')) as people:
            await people.create(Person(id='a', name='Ada', born=1815))
            assert await people.count({'name': 'Ada', 'born': 1815}) == 1
        assert tables_of(path) == before[0]


async def test_field_removed_from_the_model_loses_its_column(path: Path, new_postgres_url: Callable[[], str]) -> None:
    shorter = create_model('Person', id=str, name=str)
    for url in places(path, new_postgres_url):
        async with open_repository(url, Person, fields=('born', 'name')) as people:
            await people.create(Person(id='a', name='Ada', born=1815))
        async with open_repository(url, shorter, fields=('name',)) as others:
            assert await others.count({'name': 'Ada'}) == 1
    assert tables_of(path)['rows_person'] == ['key', 'body', 'c2']
    assert indexes_of(path) == ['by_c2_rows_person']


async def test_field_of_another_kind_gets_another_column(path: Path, new_postgres_url: Callable[[], str]) -> None:
    class Counted(BaseModel):
        id: str
        name: int

    for url in places(path, new_postgres_url):
        async with open_repository(url, Person, fields=('born', 'name'), name='p') as people:
            await people.create(Person(id='a', name='12'))
            async with open_repository(url, Counted, fields=('name',), name='p') as counted:
                assert await counted.count({'name': 12}) == 1
            with pytest.raises(RepositoryUnavailableError):
                await people.count({'name': '12'})
            await people.create(Person(id='b', name='13'))  # recreates the columns of its kind
            assert await people.count({'name': In(['12', '13'])}) == 2
    assert tables_of(path)['rows_p'] == ['key', 'body', 'c4', 'c5']


async def test_column_is_not_added_if_a_row_cannot_fill_it(path: Path, url: str) -> None:
    before = create_model('Person', id=str, name=(str | None, None))
    async with open_repository(url, before) as people:
        await people.create(before(id='a', name='x' * 3000))
        await people.create(before(id='b'))
    had = tables_of(path)
    with pytest.raises(InvalidRowError, match='name'):
        async with open_repository(url, before, fields=('name',)):
            pass
    async with open_repository(url, before) as people:
        await people.delete('a')
    with pytest.raises(UnreadableRowError, match="'b'"):
        async with open_repository(url, Person, fields=('name',)):
            pass
    assert tables_of(path) == had


async def test_rows_with_another_key_are_refused(url: str) -> None:
    class Account(BaseModel):
        id: UUID
        name: str

    async with open_repository(url, Person, name='x'):
        pass
    for model, key in ((Person, 'name'), (Account, 'id')):
        with pytest.raises(InvalidFieldError, match=r"the table 'x' has the key 'id' \(text\)"):
            async with open_repository(url, model, key=key, name='x'):
                pass


# Several processes


_WRITER = """
import asyncio, sys
from pydantic import BaseModel
from pydantic_deep.repository import Create, RowExistsError, open_repository

class Person(BaseModel):
    id: str
    name: str
    born: int | None = None

async def main(url, me):
    async with open_repository(url, Person, fields=('name',)) as people:
        print('open', flush=True)
        sys.stdin.readline()
        won = 0
        for at in range(30):
            try:
                await people.apply([Create(Person(id=f'{at:02}', name=me)), Create(Person(id=f'{me}{at}', name=me))])
                won += 1
            except RowExistsError:
                pass
        print(won, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
async def test_two_processes_share_one_table(path: Path, new_postgres_url: Callable[[], str]) -> None:
    """004-04: transactions of different processes are isolated."""
    for url in places(path, new_postgres_url):
        command = (sys.executable, '-c', _WRITER, url)
        programs = [await create_subprocess_exec(*command, name, stdin=PIPE, stdout=PIPE) for name in 'xy']
        for program in programs:
            assert program.stdout is not None
            assert await program.stdout.readline() == b'open\n'
        said = await asyncio.gather(*(program.communicate(b'\n') for program in programs))
        won = [int(out) for out, _ in said]
        assert sum(won) == 30
        async with open_repository(url, Person, fields=('name',)) as people:
            assert [await people.count({'name': name}) for name in 'xy'] == [2 * count for count in won]


# Plans


class Event(BaseModel):
    id: str
    at: datetime | None


class Explaining(SqliteEngine):
    """Records SQLite's query plan of every read."""

    steps: list[str]

    async def read(self, operation: Callable[[], Operation[R]]) -> R:
        def explained() -> Operation[R]:
            running = operation()
            try:
                statement = next(running)
                while True:
                    plan = yield statement._replace(sql=f'EXPLAIN QUERY PLAN {statement.sql}')
                    self.steps += [str(row[3]) for row in plan]
                    statement = running.send((yield statement))
            except StopIteration as stop:
                return stop.value

        return await super().read(explained)


@pytest.mark.parametrize('order', ['at', '-at', 'id', '-id'])
async def test_page_is_read_from_an_index(path: Path, order: str) -> None:
    """A page costs as much as its rows: no statement scans or sorts all rows, except ties in descending order."""
    engine = await Explaining.open(path)
    engine.steps = []
    events = await SqlRepository.open(engine, Event, fields=('at',))
    engine.steps.clear()  # the steps that looked up the table
    ties = {f'USE TEMP B-TREE FOR {part} OF ORDER BY' for part in ('RIGHT PART', 'LAST TERM')}  # SQLite 3.45, 3.53
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    await events.apply([Create(Event(id=f'{at:03}', at=moment if at % 9 else None)) for at in range(200)])
    for limit in (5, 190):
        page = await events.list(order_by=order, limit=limit)
        assert len((await events.list(order_by=order, limit=5, cursor=page.cursor)).items) == 5
    await engine.aclose()
    assert len(engine.steps) >= 4
    assert {step for step in engine.steps if ' USING ' not in step} <= (ties if order == '-at' else set[str]())
