"""Repository in an Iceberg table (004-08, C29)."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import anyio.from_thread
import pytest
from pydantic import BaseModel, create_model
from pyiceberg.catalog.sql import SqlCatalog

from pydantic_deep.repository import (
    Change,
    Create,
    Delete,
    InvalidFieldError,
    MemoryRepository,
    Range,
    Repository,
    RepositoryFormatError,
    RepositoryUnavailableError,
    RowExistsError,
    Upsert,
    copy_rows,
)
from pydantic_deep.repository.conformance import OpenRepository, RepositorySuite, Sample
from pydantic_deep.repository.iceberg import IcebergRepository

T = TypeVar('T', bound=BaseModel)

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class TestIcebergRepository(RepositorySuite):
    """004-08: Iceberg."""

    concurrent_updates = 4

    @pytest.fixture
    async def open_repository(self, tmp_path: Path) -> AsyncIterator[OpenRepository]:
        async with AsyncExitStack() as stack:

            async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
                opened = await IcebergRepository.open(tmp_path, model, key=key, fields=fields)
                return await stack.enter_async_context(opened)

            yield open_one

    async def test_concurrent_tasks_can_write(self, rows: Repository[Sample]) -> None:
        """With fewer tasks than other engines: each write is a commit, and commits become slower."""
        await asyncio.gather(*(rows.upsert(Sample(id=f'{task}', count=task)) for task in range(8)))
        assert [row.count for row in (await rows.list()).items] == list(range(8))

    async def test_concurrent_tasks_can_write_one_row(self, rows: Repository[Sample]) -> None:
        await asyncio.gather(*(rows.upsert(Sample(id='a', count=task, name=f'of {task}')) for task in range(8)))
        (row,) = (await rows.list()).items
        assert row.name == f'of {row.count}'


class Event(BaseModel):
    """A row with one field of each kind that has its own column type."""

    id: str
    at: datetime | None = None
    is_good: bool = True
    score: float = 0.0
    count: int | None = None


FIELDS = ('at', 'is_good', 'score', 'count')


def metadata_count(warehouse: Path) -> int:
    """Return the number of commits, including the one that created the table."""
    return len(list((warehouse / 'repository' / 'event' / 'metadata').glob('*.metadata.json')))


async def test_thousand_rows_are_one_commit(tmp_path: Path) -> None:
    """C29: an export is one commit, not one for each row."""
    async with await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as events:
        await events.apply([Create(Event(id=f'{number:04}', count=number)) for number in range(1000)])
        assert metadata_count(tmp_path) == 2
        changes: list[Change[Event]] = [Upsert(Event(id='0000', count=-1)), Delete('0001'), Create(Event(id='x'))]
        await events.apply(changes)
        assert metadata_count(tmp_path) == 3
        page = await events.list({'count': Range(lt=3)}, order_by='count')
        assert [event.id for event in page.items] == ['0000', '0002']
        assert await events.count() == 1000


async def test_changes_without_effect_make_no_commit(tmp_path: Path) -> None:
    async with await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as events:
        await events.apply([])
        assert await events.delete('a') is False
        assert metadata_count(tmp_path) == 1


async def test_copied_rows_are_committed_in_batches_of_a_thousand(tmp_path: Path) -> None:
    """004-08: export of rows from another repository."""
    source = MemoryRepository(Event, fields=FIELDS)
    for number in range(1500):
        await source.create(Event(id=f'{number:04}', count=number))
    async with await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as events:
        assert await copy_rows(source, events, {'count': Range(ge=100)}) == 1400
        assert metadata_count(tmp_path) == 3
        assert await copy_rows(source, events, {'count': Range(ge=1499)}) == 1
        assert await events.count() == 1400
        assert (await events.get('0100')).count == 100


async def test_conflicting_commits_are_retried(tmp_path: Path) -> None:
    async with (
        await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as one,
        await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as other,
    ):

        async def write(number: int) -> None:
            await (one if number % 2 else other).create(Event(id=str(number)))

        await asyncio.gather(*map(write, range(8)))
        assert [event.id for event in (await one.list()).items] == list('01234567')


async def test_row_created_just_before_the_commit_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as one,
        await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as other,
    ):
        interrupt_commits(monkeypatch, lambda: other.create(Event(id='a', count=1)), times=1)
        with pytest.raises(RowExistsError):
            await one.create(Event(id='a', count=2))
        assert (await one.get('a')).count == 1


async def test_commit_is_abandoned_after_repeated_conflicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as one,
        await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as other,
    ):
        waits: list[float] = []
        monkeypatch.setattr('time.sleep', waits.append)
        monkeypatch.setattr('random.random', lambda: 1.0)
        numbers = iter(range(100))
        interrupt_commits(monkeypatch, lambda: other.create(Event(id=f'other {next(numbers)}')), times=100)
        with pytest.raises(RepositoryUnavailableError, match='10 attempts'):
            await one.create(Event(id='a'))
        assert waits == [pytest.approx(number / 10) for number in range(10)]
        assert await other.count() == 10


def interrupt_commits(
    monkeypatch: pytest.MonkeyPatch, do: Callable[[], Coroutine[Any, Any, object]], times: int
) -> None:
    """Do something right before each of the next commits, which no ordering of tasks could guarantee."""
    commit, left, is_interrupted = SqlCatalog.commit_table, times, False

    def commit_later(self: SqlCatalog, *args: Any) -> object:
        nonlocal left, is_interrupted
        if left and not is_interrupted:
            left, is_interrupted = left - 1, True
            anyio.from_thread.run(do)
            is_interrupted = False
        return commit(self, *args)

    monkeypatch.setattr(SqlCatalog, 'commit_table', commit_later)


async def test_any_pyiceberg_catalogue_can_be_used(tmp_path: Path) -> None:
    properties = {'type': 'sql', 'uri': f'sqlite:///{tmp_path}/other.db', 'warehouse': str(tmp_path)}
    async with await IcebergRepository.open(properties, Event, name='log') as events:
        await events.create(Event(id='a'))
    async with await IcebergRepository.open(properties, Event, name='log') as events:
        assert await events.count() == 1
    assert (tmp_path / 'repository' / 'log').is_dir()


async def test_repository_opens_no_network_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C29: works offline."""

    def refuse(*_: object) -> None:
        raise AssertionError('A socket was connected.')

    monkeypatch.setattr('socket.socket.connect', refuse)
    async with await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as events:
        await events.create(Event(id='a'))
        assert await events.count() == 1


async def test_closed_repository_has_no_open_files(tmp_path: Path) -> None:
    async with await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as events:
        await events.create(Event(id='a'))
        assert open_files(tmp_path) != []
    assert open_files(tmp_path) == []


def open_files(below: Path) -> list[Path]:
    links = [link.readlink() for link in Path('/proc/self/fd').iterdir() if link.is_symlink()]
    return [path for path in links if path.is_relative_to(below)]


async def test_directory_name_may_contain_special_characters(tmp_path: Path) -> None:
    for name in ('a b', 'a#b', 'a?b', 'a%20b', 'größe', '"'):
        async with await IcebergRepository.open(tmp_path / name, Event) as events:
            await events.create(Event(id='a'))
            assert await events.count() == 1
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ['catalog.db', 'repository']


@pytest.mark.parametrize('name', ['', 'A', '../up', 'a.b', 'x' * 64])
async def test_invalid_table_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match='not a valid table name'):
        await IcebergRepository.open(tmp_path / 'new', Event, name=name)
    assert not (tmp_path / 'new').exists()


async def test_invalid_catalogue_is_refused_unchanged(tmp_path: Path) -> None:
    file = tmp_path / 'catalog.db'
    file.write_bytes(b'hello, world')
    with pytest.raises(RepositoryFormatError, match='not a SQLite catalogue'):
        await IcebergRepository.open(tmp_path, Event)
    assert file.read_bytes() == b'hello, world'
    with pytest.raises(RepositoryUnavailableError, match='cannot be opened'):
        await IcebergRepository.open(file, Event)


async def test_unreachable_catalogue_raises_unavailable(tmp_path: Path) -> None:
    with pytest.raises(RepositoryUnavailableError, match='cannot be opened'):
        await IcebergRepository.open({'type': 'sql', 'uri': f'sqlite:///{tmp_path}/none/catalog.db'}, Event)
    with pytest.raises(ValueError, match='nonsense'):
        await IcebergRepository.open({'type': 'nonsense'}, Event)


async def test_table_with_another_key_is_refused(tmp_path: Path) -> None:
    model = create_model('Event', id=str, other=str)
    async with await IcebergRepository.open(tmp_path, model, key='other', fields=('id',)) as events:
        await events.create(model(id='a', other='b'))
    with pytest.raises(InvalidFieldError, match="the key 'other'"):
        await IcebergRepository.open(tmp_path, model, fields=('other',))


async def test_rewritten_table_refuses_repositories_with_the_old_fields(tmp_path: Path) -> None:
    async with await IcebergRepository.open(tmp_path, Event, fields=('score',)) as old:
        await old.create(Event(id='a', score=2.0))
        async with await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as new:
            for asked in (old.create(Event(id='b')), old.get('a')):
                with pytest.raises(RepositoryUnavailableError, match='the same fields'):
                    await asked
            assert [event.id for event in (await new.list({'is_good': True, 'score': 2.0})).items] == ['a']


@pytest.mark.parametrize('pattern', ['data/*.parquet', 'metadata/*.avro', 'metadata/*.json'])
@pytest.mark.parametrize('damage', ['gone', 'empty', 'other'])
async def test_missing_or_damaged_files_raise_unavailable(tmp_path: Path, pattern: str, damage: str) -> None:
    async with await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as events:
        await events.create(Event(id='a'))
        for path in (tmp_path / 'repository' / 'event').glob(pattern):
            if damage == 'gone':
                path.unlink()
            else:
                path.write_bytes(b'' if damage == 'empty' else b'hello, world' * 99)
        with pytest.raises(RepositoryUnavailableError, match='cannot be read'):
            await events.list()


def test_import_without_the_extra_suggests_installing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'pyiceberg', None)
    monkeypatch.delitem(sys.modules, 'pydantic_deep.repository.iceberg')
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'versioned-deep-agents\[iceberg\]'"):
        importlib.import_module('pydantic_deep.repository.iceberg')
