"""URLs and files that `open_store` opens or refuses."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import pydantic_deep.store as package
from pydantic_deep.store import Commit, StoreFormatError, StoreUnavailableError, open_store
from pydantic_deep.store._samples import sample_run

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    'url', ['', 'memory', 'memory:/x', 'agents.db', 'sqlite:agents.db', 'sqlite://agents.db', 'sqlite:///', 'mysql://h/d', 'sqlite:///a\0b',
     'sqlite:///:memory:'],
)  # fmt: skip
async def test_invalid_url_is_refused_with_examples(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r'sqlite:////srv/agents\.db') as caught:
        async with open_store(url):
            pass
    assert repr(url) in str(caught.value)
    assert not list(tmp_path.iterdir())


async def test_password_in_a_url_is_not_shown() -> None:
    with pytest.raises(ValueError, match=r'mysql://me:\*\*\*@host') as caught:
        async with open_store('mysql://me:secret@host/db'):
            pass
    assert 'secret' not in str(caught.value)


async def test_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith('pydantic_deep.store.postgres')]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(package, 'postgres', None, raising=False)  # the import also sets the attribute
    monkeypatch.setitem(sys.modules, 'asyncpg', None)
    with pytest.raises(ImportError, match=r'versioned-deep-agents\[postgres\]'):
        async with open_store('postgresql://localhost/db'):
            pass


async def test_relative_path_is_resolved_when_the_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sqlite:///relative.db` is resolved once: after `os.chdir` the same file is read, written and locked, and no
    other database is created.
    """
    (tmp_path / 'here').mkdir()
    (tmp_path / 'there').mkdir()
    monkeypatch.chdir(tmp_path / 'here')
    async with open_store('sqlite:///agents.db') as store:
        assert store.url == f'sqlite:///{tmp_path}/here/agents.db'
        monkeypatch.chdir(tmp_path / 'there')
        run = sample_run('c')
        await store.commit(Commit(runs=[run]))
        assert await store.run(run.id) is not None
        assert await store.orphans() == []
        async with open_store(store.url) as other:
            assert await other.orphans() == []
    assert [path.name for path in (tmp_path / 'there').iterdir()] == []
    assert (tmp_path / 'here' / 'agents.db').is_file()


@pytest.mark.parametrize('links', ['file', 'directory', 'dangling'])
async def test_symbolic_link_opens_the_store_it_points_to(tmp_path: Path, links: str) -> None:
    """The log and the locks of a database opened through a symbolic link are next to the target file, so that live
    owners are not taken for crashed ones.
    """
    real = tmp_path / 'real' / 'agents.db'
    real.parent.mkdir()
    link = tmp_path / 'link' / 'agents.db'
    if links == 'directory':
        link.parent.symlink_to(real.parent)
    else:
        link.parent.mkdir()
        link.symlink_to(real)
    if links == 'file':
        async with open_store(f'sqlite:///{real}'):
            pass
    async with open_store(f'sqlite:///{link}') as through, open_store(f'sqlite:///{real}') as direct:
        assert through.url == direct.url
        run = sample_run('c')
        await through.commit(Commit(runs=[run]))
        assert await direct.orphans() == []
        assert await direct.claim_run(run.id) is False
    assert [path.name for path in link.parent.iterdir()] == (
        ['agents.db'] if links != 'directory' else [path.name for path in real.parent.iterdir()]
    )


async def test_files_of_a_store_are_private_to_the_user(tmp_path: Path) -> None:
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        assert await store.count() == 0
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        assert modes['agents.db'] == 0o600
        assert modes['agents.db.owners'] == 0o700
        assert {mode & 0o077 for mode in modes.values()} == {0}


@pytest.mark.parametrize(
    ('statements', 'message'),
    [
        ('CREATE TABLE users (id)', "a table 'users'"),
        ("CREATE TABLE meta (key, value); INSERT INTO meta VALUES ('format', 'other')", "format is 'other'"),
        (
            'CREATE TABLE meta (key, value);'
            "INSERT INTO meta VALUES ('format', 'pydantic-deep store'), ('version', '99')",
            'version 99',
        ),
    ],
)
async def test_foreign_database_is_refused_unchanged(tmp_path: Path, statements: str, message: str) -> None:
    path = tmp_path / 'other.db'
    connection = sqlite3.connect(path)
    connection.executescript(statements)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreFormatError, match=message):
        async with open_store(f'sqlite:///{path}'):
            pass
    assert path.read_bytes() == before


async def test_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / 'notes.txt'
    path.write_text('not a database, but long enough to be looked at\n' * 40)
    with pytest.raises(StoreFormatError, match='not a SQLite database'):
        async with open_store(f'sqlite:///{path}'):
            pass


async def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r'missing/agents\.db'):
        async with open_store(f'sqlite:///{tmp_path}/missing/agents.db'):
            pass


async def test_unrelated_import_error_is_not_reported_as_a_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'pydantic_deep.store.postgres', None)
    with pytest.raises(ModuleNotFoundError, match=r'pydantic_deep\.store\.postgres'):
        async with open_store('postgresql://nobody@localhost/nothing'):
            pass


async def test_commits_survive_when_other_stores_and_processes_close_the_file(
    tmp_path: Path,
) -> None:
    """A second open store on the same file does not release the locks of the first: other processes that open and close
    the file do not remove its log, and see every commit.
    """
    path = tmp_path / 'agents.db'
    program = f"import sqlite3; c = sqlite3.connect({str(path)!r}); print(*c.execute('SELECT COUNT(*) FROM run').fetchone()); c.close()"

    async def count_elsewhere() -> int:
        return int((await asyncio.to_thread(subprocess.check_output, [sys.executable, '-c', program])).strip())

    async with open_store(f'sqlite:///{path}') as first:
        for number, read_only in enumerate((False, True), 1):
            await first.commit(Commit(runs=[sample_run('c')]))
            async with open_store(f'sqlite:///{path}', read_only=read_only) as second:
                assert len(await second.runs()) == 2 * number - 1
            assert await count_elsewhere() == 2 * number - 1
            await first.commit(Commit(runs=[sample_run('c')]))
            assert await count_elsewhere() == 2 * number


@pytest.mark.parametrize('read_only', [False, True])
async def test_file_with_a_second_hard_link_is_refused(tmp_path: Path, read_only: bool) -> None:
    """SQLite creates a log per file name, so a file with two names is refused under both."""
    async with open_store(f'sqlite:///{tmp_path}/agents.db'):
        pass
    os.link(tmp_path / 'agents.db', tmp_path / 'same.db')
    for name in ('agents.db', 'same.db'):
        with pytest.raises(StoreUnavailableError, match=rf'{name}.* has 2 names \(hard links\)'):
            async with open_store(f'sqlite:///{tmp_path}/{name}', read_only=read_only):
                pass
    (tmp_path / 'same.db').unlink()
    async with open_store(f'sqlite:///{tmp_path}/agents.db', read_only=read_only) as store:
        assert await store.count() == 0


def _deny(*_arguments: object) -> bool:
    return False


@pytest.mark.parametrize('read_only', [False, True])
async def test_directory_or_unreadable_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    """Directories and files without permission are refused before any file is created."""
    with pytest.raises(StoreUnavailableError, match='Is a directory'):
        async with open_store(f'sqlite:///{tmp_path}', read_only=read_only):
            pass
    (tmp_path / 'agents.db').touch()
    monkeypatch.setattr('pydantic_deep.store.sqlite._engine.os.access', _deny)  # root has every permission
    with pytest.raises(StoreUnavailableError, match='Permission denied'):
        async with open_store(f'sqlite:///{tmp_path}/agents.db', read_only=read_only):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ['agents.db']
