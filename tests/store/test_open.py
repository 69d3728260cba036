"""What `open_store` opens, and what it refuses."""

from __future__ import annotations

import sqlite3
import stat
import sys
from pathlib import Path

import pytest

import pydantic_deep.store as package
from pydantic_deep.store import Commit, StoreFormatError, StoreUnavailableError, open_store
from pydantic_deep.store._samples import sample_run

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    'url', ['', 'memory', 'memory:/x', 'agents.db', 'sqlite:agents.db', 'sqlite://agents.db', 'sqlite:///', 'mysql://h/d', 'sqlite:///a\0b'],
)  # fmt: skip
async def test_a_url_that_is_none_is_refused_with_the_three_forms(url: str) -> None:
    with pytest.raises(ValueError, match=r'sqlite:////srv/agents\.db') as caught:
        async with open_store(url):
            pass
    assert repr(url) in str(caught.value)


async def test_a_password_is_not_shown() -> None:
    with pytest.raises(ValueError, match=r'mysql://me:\*\*\*@host') as caught:
        async with open_store('mysql://me:secret@host/db'):
            pass
    assert 'secret' not in str(caught.value)


async def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith('pydantic_deep.store.') and 'postgres' in name]:
        attribute = name.rpartition('.')[2]
        monkeypatch.setattr(package, attribute, getattr(package, attribute))  # an import puts the new module there, too
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, 'asyncpg', None)
    with pytest.raises(ImportError, match='pip install asyncpg'):
        async with open_store('postgresql://localhost/db'):
            pass


async def test_a_relative_path_is_one_from_here_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sqlite:///relative.db` is resolved once: after `os.chdir` the same file is read, written and locked, and no
    other database appears."""
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
async def test_a_store_behind_a_link_is_the_one_that_it_leads_to(tmp_path: Path, links: str) -> None:
    """A database that is opened through a symbolic link has its log and its locks beside the file that the link leads
    to: whoever lives there is not taken for dead."""
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
        assert await direct.take_over(run.id) is False
    assert [path.name for path in link.parent.iterdir()] == (
        ['agents.db'] if links != 'directory' else [path.name for path in real.parent.iterdir()]
    )


async def test_only_the_user_may_read_the_file(tmp_path: Path) -> None:
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
async def test_a_database_of_somebody_else_is_refused_and_not_changed(
    tmp_path: Path, statements: str, message: str
) -> None:
    path = tmp_path / 'other.db'
    connection = sqlite3.connect(path)
    connection.executescript(statements)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreFormatError, match=message):
        async with open_store(f'sqlite:///{path}'):
            pass
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / 'notes.txt'
    path.write_text('not a database, but long enough to be looked at\n' * 40)
    with pytest.raises(StoreFormatError, match='not a SQLite database'):
        async with open_store(f'sqlite:///{path}'):
            pass


async def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r'missing/agents\.db'):
        async with open_store(f'sqlite:///{tmp_path}/missing/agents.db'):
            pass


async def test_places_in_memory_are_shared_by_name_alone() -> None:
    async with (
        open_store('memory:shared') as first,
        open_store('memory:shared') as second,
        open_store('memory:') as other,
    ):
        assert await first.engine.living_owners([first.owner, second.owner, other.owner]) == {first.owner, second.owner}


async def test_an_import_that_fails_for_another_reason_is_not_about_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'pydantic_deep.store.postgres', None)
    with pytest.raises(ModuleNotFoundError, match=r'pydantic_deep\.store\.postgres'):
        async with open_store('postgresql://nobody@localhost/nothing'):
            pass
