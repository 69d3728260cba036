"""Stores opened read-only."""

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


async def test_read_only_store_reads_everything_and_refuses_writes(url: str) -> None:
    """`open_store(url, read_only=True)` supports every read, sees commits of others, and refuses every write with
    `StoreReadOnlyError`.
    """
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


async def test_read_only_store_must_exist(tmp_path: Path) -> None:
    """A read-only open creates neither a file nor tables."""
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


async def test_empty_postgresql_schema_is_not_filled_by_a_read_only_open(postgres_url: str) -> None:
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
    """A directory that every user can access, unlike pytest's."""
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason='It gives up the rights of root in a child process.')
@pytest.mark.parametrize('log', ['none', 'shared', 'without its index'])
async def test_store_can_be_read_without_write_permission(tmp_path: Path, place: Path, log: str) -> None:
    """A read-only store needs no write permission for its file or directory, with and without a log."""
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


async def test_immutable_file_is_reopened_for_each_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a shared log, each read sees the current contents of the file."""
    url = f'sqlite:///{tmp_path}/agents.db'
    async with open_store(url) as store:
        await Dialogue(store).begin()
    # Root may write everywhere, so the permission check is patched.
    monkeypatch.setattr(os, 'access', _refuse_directories)
    async with open_store(url, read_only=True) as reader:
        assert await reader.count() == 1
        async with open_store(url) as store:
            await Dialogue(store).begin()
        assert await reader.count() == 2


async def test_read_only_store_does_not_block_writers(tmp_path: Path) -> None:
    """Others can write while a read-only store is open."""
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
