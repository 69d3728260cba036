"""Migration of stores of older releases, with all their data, when they are opened."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import Commit, SqlStore, WorkspaceRecord, open_store, restore_store
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.store.operations import _backup
from pydantic_deep.store.sql import _migrations
from pydantic_deep.store.sql.dialect import POSTGRES
from tests.store.damage import PLACE, forget_identity, make_sample, set_back

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('version', [1, 2, 3])
async def test_older_store_is_migrated_and_stores_workspace_identities(tmp_path: Path, version: int) -> None:
    """A store with tables of versions 1 to 3 is migrated with every row, and stores workspace identities afterwards."""
    path = tmp_path / 'agents.db'
    await make_sample(path)
    known = await forget_identity(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for sql in set_back(version):
            database.execute(sql)
    async with open_store(f'sqlite:///{path}') as store:
        assert await store.workspace(PLACE) == known
        assert await store.check() == []
        learned = known._replace(identity='inode 7')
        await store.commit(Commit(workspaces=[learned]))
        assert await store.workspace(PLACE) == learned
        assert await store.check() == []


async def test_backup_of_an_older_store_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup with the previous release's tables has no identities, and restoring it adds the column."""
    path = tmp_path / 'agents.db'
    await make_sample(path)
    known = await forget_identity(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for sql in set_back(3):
            database.execute(sql)
    with monkeypatch.context() as patched:
        for module in (_backup, _migrations):
            patched.setattr(module, 'MIGRATIONS', _migrations.MIGRATIONS[:3])
        async with open_store(f'sqlite:///{path}', read_only=True) as store:
            await store.backup(tmp_path / 'old.backup')
    await restore_store(f'sqlite:///{tmp_path}/new.db', tmp_path / 'old.backup')
    async with open_store(f'sqlite:///{tmp_path}/new.db') as store:
        assert await store.workspace(PLACE) == known
        assert await store.check() == []


async def test_older_store_on_postgresql_is_migrated(postgres_url: str) -> None:
    """Tables of the previous release are migrated on PostgreSQL as on SQLite."""
    known = WorkspaceRecord(PLACE, None, None)

    def undo() -> Operation[None]:
        for sql in set_back(3, POSTGRES):
            yield Statement(sql)

    async with open_store(postgres_url) as store:
        assert isinstance(store, SqlStore)
        await store.commit(Commit(workspaces=[known]))
        await store.engine.write(undo)
    async with open_store(postgres_url) as store:
        assert await store.workspace(PLACE) == known
        learned = known._replace(identity='inode 7')
        await store.commit(Commit(workspaces=[learned]))
        assert await store.workspace(PLACE) == learned
        assert await store.check() == []
