"""A store that is opened for reading only."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pydantic_deep.store import (
    Commit,
    Decision,
    StoreFormatError,
    StoreReadOnlyError,
    StoreUnavailableError,
    new_id,
    open_store,
)
from pydantic_deep.store._samples import Dialogue, sample_run

from .forks import in_fork

pytestmark = pytest.mark.anyio


@pytest.fixture(params=['memory', 'sqlite', 'postgres'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == 'memory':
        return f'memory:{new_id()}'
    if request.param == 'sqlite':
        return f'sqlite:///{tmp_path}/agents.db'
    return str(request.getfixturevalue('postgres_url'))


async def test_a_store_that_is_opened_for_reading_reads_everything_and_changes_nothing(url: str) -> None:
    """`open_store(url, read_only=True)` answers every read, sees what others commit, and refuses every method that
    writes with `StoreReadOnlyError`."""
    async with open_store(url) as store:
        dialogue = Dialogue(store)
        version = await dialogue.begin()
        async with open_store(url, read_only=True) as reader:
            assert await reader.version(version.id) == version
            run = sample_run(dialogue.id)
            await store.commit(Commit(runs=[run]))
            assert [each.id for each in await reader.runs()] == [run.id]
            assert await reader.orphans() == []
            decision = Decision(approval_id=new_id(), arguments_digest='', status='approved', decision='{}', by='me')
            for writes in (
                reader.commit(Commit()),
                reader.decide([decision]),
                reader.claim_approvals(version.id, run.id),
                reader.claim_workspace('{}', run.id, None),
                reader.delete(version.id),
                reader.delete_line(version.id),
                reader.gc(),
            ):
                with pytest.raises(StoreReadOnlyError, match='read_only'):
                    await writes
        assert await store.version(version.id) == version


async def test_a_store_that_is_not_there_is_not_made_to_be_read(tmp_path: Path) -> None:
    """A read-only store must exist: neither a file nor tables are made."""
    with pytest.raises(StoreUnavailableError, match='No such file'):
        async with open_store(f'sqlite:///{tmp_path}/agents.db', read_only=True):
            pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / 'empty.db').touch()
    with pytest.raises(StoreFormatError, match='Open it once without'):
        async with open_store(f'sqlite:///{tmp_path}/empty.db', read_only=True):
            pass
    assert (tmp_path / 'empty.db').stat().st_size == 0
    (tmp_path / 'text.db').write_text('no database ' * 100)
    with pytest.raises(StoreFormatError, match='not a SQLite database'):
        async with open_store(f'sqlite:///{tmp_path}/text.db', read_only=True):
            pass


async def test_an_empty_schema_is_not_filled_to_be_read(postgres_url: str) -> None:
    """The same on PostgreSQL."""
    with pytest.raises(StoreFormatError, match='Open it once without'):
        async with open_store(postgres_url, read_only=True):
            pass


async def _read_as_nobody(url: str) -> str:  # pragma: no cover - in another process
    os.setgid(65534)
    os.setuid(65534)
    async with open_store(url, read_only=True) as store:
        return f'{await store.count()} {await store.orphans()}'


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody can reach, as those of pytest are not."""
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason='It gives up the rights of root in a child process.')
@pytest.mark.parametrize('log', ['none', 'shared', 'without its index'])
async def test_a_store_is_read_where_nothing_can_be_written(tmp_path: Path, place: Path, log: str) -> None:
    """A read-only store needs to write neither its file nor its directory, with and without a log beside it."""
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        await Dialogue(store).begin()
        if log != 'none':
            _copy(tmp_path, place, ('agents.db', 'agents.db-wal', *(['agents.db-shm'] if log == 'shared' else [])))
    if log == 'none':
        _copy(tmp_path, place, ('agents.db',))
    place.chmod(0o555)
    answer = in_fork(partial(_read_as_nobody, f'sqlite:///{place}/agents.db'))
    assert answer.startswith('StoreUnavailableError' if log == 'without its index' else '1 []')
    assert sorted(path.name for path in place.iterdir()) == sorted(
        {'none': ['agents.db'], 'shared': ['agents.db', 'agents.db-shm', 'agents.db-wal']}.get(
            log, ['agents.db', 'agents.db-wal']
        )
    )


def _copy(origin: Path, place: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (place / name).write_bytes((origin / name).read_bytes())
        (place / name).chmod(0o444)


def _refuse_directories(path: Path, _mode: int) -> bool:
    return not path.is_dir()


async def test_an_immutable_file_is_opened_anew_for_each_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no log can be shared, each read sees what is in the file by then."""
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        await Dialogue(store).begin()
    # Root may write everywhere, so the directory is only said to be unwritable.
    monkeypatch.setattr(os, 'access', _refuse_directories)
    async with open_store(url, read_only=True) as reader:
        assert await reader.count() == 1
        async with open_store(url) as store:
            await Dialogue(store).begin()
        assert await reader.count() == 2


async def test_a_reader_holds_no_lock_that_a_writer_waits_for(tmp_path: Path) -> None:
    """Others write while a read-only store is open."""
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        await Dialogue(store).begin()
    async with open_store(url, read_only=True) as reader:
        assert await reader.count() == 1
        raw = sqlite3.connect(tmp_path / 'agents.db', isolation_level=None, timeout=0)
        raw.execute('BEGIN IMMEDIATE')
        assert await reader.count() == 1
        raw.execute('ROLLBACK')
        raw.close()
        assert not list((tmp_path / 'agents.db.owners').iterdir())
