"""Stores of older releases are brought up to date when they are opened, with all that they have."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import Commit, WorkspaceRecord, _backup, _schema, open_store, restore_store
from pydantic_deep.store._engine import Operation, Statement
from pydantic_deep.store._schema import FORMAT
from pydantic_deep.store._seals import seal
from pydantic_deep.store._store import SqlStore
from pydantic_deep.store._tallies import COUNTED

from .damage import PLACE, forget_identity, make_sample

pytestmark = pytest.mark.anyio


def _set_back(version: int) -> list[str]:
    """Return the statements that make the tables those of an older version."""
    undone = ['DROP TRIGGER reference_tally', "DELETE FROM tally WHERE name = 'reference'"]
    undone.append('ALTER TABLE request DROP COLUMN kind')
    if version < 4:
        undone.append('ALTER TABLE workspace DROP COLUMN identity')
    if version < 3:
        undone += [f'DROP TRIGGER {table}_tally' for table in COUNTED if table != 'reference']
        undone.append('DROP TABLE tally')
    if version < 2:
        sealed = [table for table in COUNTED if table not in ('node', 'config', 'config_field', 'edge', 'reference')]
        undone += [f'ALTER TABLE {table} DROP COLUMN seal' for table in sealed]
    sealed_meta = seal((FORMAT, str(version))) if version > 1 else None
    return [
        *undone,
        f"UPDATE meta SET value = '{version}' WHERE key = 'version'",
        "DELETE FROM meta WHERE key = 'seal'",
        *([] if sealed_meta is None else [f"INSERT INTO meta (key, value) VALUES ('seal', '{sealed_meta}')"]),
    ]


@pytest.mark.parametrize('version', [1, 2, 3])
async def test_an_older_store_knows_no_identities_of_directories_and_learns_them(tmp_path: Path, version: int) -> None:
    """A store of tables 1 to 3 is migrated with every row of it, and keeps identities of directories from then on."""
    path = tmp_path / 'agents.db'
    await make_sample(path)
    known = await forget_identity(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for sql in _set_back(version):
            database.execute(sql)
    async with open_store(f'sqlite:///{path}') as store:
        assert await store.workspace(PLACE) == known
        assert await store.check() == []
        learned = known._replace(identity='inode 7')
        await store.commit(Commit(workspaces=[learned]))
        assert await store.workspace(PLACE) == learned
        assert await store.check() == []


async def test_a_backup_of_an_older_store_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup that was made by the tables of the release before has no identities, and what restores it adds them."""
    path = tmp_path / 'agents.db'
    await make_sample(path)
    known = await forget_identity(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for sql in _set_back(3):
            database.execute(sql)
    with monkeypatch.context() as patched:
        for module in (_backup, _schema):
            patched.setattr(module, 'MIGRATIONS', _schema.MIGRATIONS[:3])
        async with open_store(f'sqlite:///{path}', read_only=True) as store:
            await store.backup(tmp_path / 'old.backup')
    await restore_store(f'sqlite:///{tmp_path}/new.db', tmp_path / 'old.backup')
    async with open_store(f'sqlite:///{tmp_path}/new.db') as store:
        assert await store.workspace(PLACE) == known
        assert await store.check() == []


async def test_an_older_store_on_postgres_learns_identities_of_directories(postgres_url: str) -> None:
    """Tables of the release before are migrated on PostgreSQL as they are on SQLite."""
    known = WorkspaceRecord(PLACE, None, None)

    def set_back() -> Operation[None]:
        for sql in _set_back(3):
            yield Statement(sql.replace('_tally', '_tally ON reference') if 'TRIGGER' in sql else sql)
        yield Statement('DROP FUNCTION reference_tally')

    async with open_store(postgres_url) as store:
        assert isinstance(store, SqlStore)
        await store.commit(Commit(workspaces=[known]))
        await store.engine.write(set_back)
    async with open_store(postgres_url) as store:
        assert await store.workspace(PLACE) == known
        learned = known._replace(identity='inode 7')
        await store.commit(Commit(workspaces=[learned]))
        assert await store.workspace(PLACE) == learned
        assert await store.check() == []
