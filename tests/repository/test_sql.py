"""SQL repositories: several processes, sharing the database of a store, and refusals when opening."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import (
    Repository,
    RepositoryClosedError,
    RepositoryFormatError,
    RepositoryUnavailableError,
    RowExistsError,
    SqlRepository,
    open_repository,
    sql,
)
from pydantic_deep.repository.conformance import OpenRepository, RepositorySuite
from pydantic_deep.store import StoreFormatError, new_id, open_store
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.store.postgres._driver import connect
from tests.repository.conftest import Person, places

pytestmark = pytest.mark.anyio


# Location


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


async def test_update_reads_a_row_that_another_process_creates_after_its_first_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that does not exist cannot be locked."""
    apply, seen = sql._apply, list[Person | None]()  # pyright: ignore[reportPrivateUsage] - the real race is rare

    def create_first(table: Any, steps: Any) -> Any:
        yield from apply(table, steps)
        if len(seen) == 1:
            raise RowExistsError('Person', 'a')

    def change(row: Person | None) -> Person:
        seen.append(row)
        return Person(id='a', name=f'change {len(seen)}')

    monkeypatch.setattr(sql, '_apply', create_first)
    async with open_repository(url, Person) as rows:
        await rows.update('a', change)
        assert await rows.get('a') == Person(id='a', name='change 2')
    assert seen == [None, Person(id='a', name='change 1')]


async def test_dropped_table_raises_unavailable(path: Path, url: str) -> None:
    async with open_repository(url, Person) as people:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute('DROP TABLE rows_person')
        with pytest.raises(RepositoryUnavailableError, match='no such table'):
            await people.count()


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


T = TypeVar('T', bound=BaseModel)

_SCHEMAS = itertools.count()


async def opener(url: str) -> AsyncGenerator[OpenRepository]:
    """Yield a function that opens repositories at a URL, and close them at the end."""
    async with AsyncExitStack() as stack:

        async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
            return await stack.enter_async_context(open_repository(url, model, key=key, fields=fields))

        yield open_one


class TestMemoryEngine(RepositorySuite):
    @pytest.fixture
    async def open_repository(self) -> AsyncGenerator[OpenRepository]:
        async for open_one in opener(f'memory:{new_id()}'):
            yield open_one


class TestSqlite(RepositorySuite):
    """004-08: SQL, in a file of its own."""

    @pytest.fixture
    async def open_repository(self, tmp_path: Path) -> AsyncGenerator[OpenRepository]:
        async for open_one in opener(f'sqlite:///{tmp_path}/rows.db'):
            yield open_one


class TestSqliteOfAStore(RepositorySuite):
    """004-08: SQL, in the file of a store."""

    @pytest.fixture
    async def open_repository(self, tmp_path: Path) -> AsyncGenerator[OpenRepository]:
        async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:

            async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
                return await SqlRepository.open(store, model, key=key, fields=fields)

            yield open_one


@pytest.fixture(scope='module')
def database_url(new_postgres_url: Callable[[], str]) -> str:
    return new_postgres_url()


class TestPostgres(RepositorySuite):
    """004-08: SQL, on a server; each test has a schema of its own."""

    @pytest.fixture
    async def open_repository(self, database_url: str) -> AsyncGenerator[OpenRepository]:
        schema = f'test{next(_SCHEMAS)}'
        connection = await connect(database_url)
        await connection.execute(f'CREATE SCHEMA {schema}')
        await connection.close()
        async for open_one in opener(f'{database_url}&search_path={schema}'):
            yield open_one
