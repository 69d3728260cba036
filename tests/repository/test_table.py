"""Tables of repositories in SQL: their names, and columns that follow the fields of the model."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from pydantic import BaseModel, create_model

from pydantic_deep.repository import (
    Create,
    In,
    InvalidFieldError,
    InvalidRowError,
    RepositoryUnavailableError,
    RowExistsError,
    SqlRepository,
    UnreadableRowError,
    open_repository,
)
from pydantic_deep.repository._table import table_name
from pydantic_deep.store import open_store
from tests.repository.conftest import Person, places

pytestmark = pytest.mark.anyio


def tables_of(path: Path) -> dict[str, list[str]]:
    """Return the columns of each table, read directly from the file."""
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [row[1] for row in connection.execute(f'PRAGMA table_info({name})')] for name in names}


def indexes_of(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        sql = "SELECT name FROM sqlite_master WHERE type = 'index' AND name LIKE 'by\\_c%' ESCAPE '\\' ORDER BY name"
        return [name for (name,) in connection.execute(sql)]


async def test_separate_file_has_no_tables_of_a_store(path: Path, url: str) -> None:
    async with open_repository(url, Person, fields=('born',)):
        pass
    assert tables_of(path) == {
        'meta': ['key', 'value'],
        'repository': ['name', 'key_field', 'key_kind', 'layout'],
        'rows_person': ['key', 'body', 'c1'],
    }
    assert indexes_of(path) == ['by_c1_rows_person']


async def test_invalid_fields_or_name_are_refused_before_a_file_is_created(path: Path, url: str) -> None:
    with pytest.raises(InvalidFieldError):
        async with open_repository(url, Person, fields=('none',)):
            pass
    with pytest.raises(ValueError, match='not a valid table name'):
        async with open_repository(url, Person, name='x; DROP TABLE meta'):
            pass
    assert not path.exists()


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
