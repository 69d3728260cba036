"""The SQLite file engine: its contract, damaged files, and refused statements."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import (
    Commit,
    SqlStore,
    StoreCorruptedError,
    StoreFormatError,
    StoreUnavailableError,
    open_store,
)
from pydantic_deep.store._samples import Dialogue, sample_asset
from pydantic_deep.store.conformance import OpenStore, StoreSuite
from pydantic_deep.store.sqlite import SqliteEngine
from pydantic_deep.store.sqlite import _engine as sqlite  # pyright: ignore[reportPrivateUsage]
from tests.store.conftest import opener
from tests.store.sqlite.conftest import conversation, statement

pytestmark = pytest.mark.anyio


async def test_closing_merges_the_log_into_the_file(tmp_path: Path) -> None:
    for _ in range(20):
        async with SqlStore(await SqliteEngine.open(tmp_path / 'agents.db')) as store:
            await store.commit(conversation())
            await asyncio.gather(store.conversations(), store.conversations(), store.conversations())
        assert not (tmp_path / 'agents.db-wal').exists()


async def test_refused_statements_raise_and_the_store_keeps_working(store: SqlStore) -> None:
    for run in (store.engine.read, store.engine.write):
        with pytest.raises(StoreUnavailableError, match='no such table: nowhere') as caught:
            await run(lambda: statement('SELECT * FROM nowhere'))
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert await store.count() == 0


async def test_damaged_file_raises(tmp_path: Path) -> None:
    path = tmp_path / 'agents.db'
    async with SqlStore(await SqliteEngine.open(path)) as store:
        for _ in range(200):
            await store.commit(conversation())
    data = bytearray(path.read_bytes())
    data[8192:] = b'\xff' * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.raises(StoreUnavailableError, match='damaged'):
        await SqliteEngine.open(path)


async def test_file_overwritten_with_other_data_raises_for_reads_and_writes(tmp_path: Path) -> None:
    path = tmp_path / 'agents.db'
    store = SqlStore(await SqliteEngine.open(path))
    path.write_bytes(b'no database any more ' * 1000)
    with pytest.raises(StoreFormatError, match='not a SQLite database'):
        await store.conversations()
    with pytest.raises(StoreFormatError, match='not a SQLite database'):
        await store.commit(conversation())
    await store.aclose()


async def test_lineage_with_a_missing_version_is_damage(store: SqlStore) -> None:
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    middle = await dialogue.add(root, b'1')
    leaf = await dialogue.add(middle, b'2')
    await store.engine.write(lambda: statement(f'DELETE FROM version WHERE number = {middle.number}'))
    with pytest.raises(StoreCorruptedError, match='store is damaged') as caught:
        await store.lineage(leaf.id)
    assert (caught.value.table, caught.value.row) == ('version', middle.id)


async def test_asset_that_does_not_match_its_digest_is_damage(store: SqlStore) -> None:
    asset = sample_asset(b'right')
    await store.commit(Commit(assets=[asset]))
    await store.engine.write(lambda: statement("UPDATE asset SET data = x'0077726f6e67'"))
    with pytest.raises(StoreUnavailableError, match='damaged'):
        await store.asset(asset.digest)


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    async def open_store(self, tmp_path: Path) -> AsyncIterator[OpenStore]:
        async for open_one in opener(f'sqlite:///{tmp_path}/agents.db'):
            yield open_one


@pytest.mark.parametrize('has_log', [False, True])
async def test_store_in_a_read_only_directory_is_read_without_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_log: bool
) -> None:
    """SQLite's error for a read-only directory is simulated, because root can write to any directory."""
    path = tmp_path / 'agents.db'
    async with open_store(f'sqlite:///{path}'):
        pass
    if has_log:
        (tmp_path / 'agents.db-wal').write_bytes(b'something')
    connect = sqlite._connection  # pyright: ignore[reportPrivateUsage]

    def refuse(path: Path, mode: str) -> sqlite3.Connection:
        if mode == 'mode=ro':
            error = sqlite3.OperationalError('unable to open database file')
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return connect(path, mode)

    monkeypatch.setattr(sqlite, '_connection', refuse)
    if has_log:
        with pytest.raises(sqlite3.OperationalError, match='unable to open'):
            sqlite.connect_read_only(path)
    else:
        with closing(sqlite.connect_read_only(path)) as connection:
            assert connection.execute('SELECT count(*) FROM version').fetchone() == (0,)
