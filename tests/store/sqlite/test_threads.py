"""Threads of the SQLite engine: group commits, shutdown, and waiting callers."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from pydantic_deep.store import Commit, Committed, SqlStore, StoreCorruptedError, StoreUnavailableError
from pydantic_deep.store._samples import Dialogue, sample_asset
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.store.sqlite import SqliteEngine, _threads
from pydantic_deep.store.sqlite import _engine as sqlite  # pyright: ignore[reportPrivateUsage]
from pydantic_deep.store.sqlite._threads import run_operation
from tests.store.sqlite.conftest import conversation, statement

pytestmark = pytest.mark.anyio


async def test_waiting_commits_share_a_transaction(store: SqlStore, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / 'agents.db', isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    tasks = [asyncio.ensure_future(store.commit(conversation())) for _ in range(50)]
    for _ in range(5):
        await asyncio.sleep(0)
    wal = (tmp_path / 'agents.db-wal').stat().st_size
    other.execute('ROLLBACK')
    other.close()
    await asyncio.gather(*tasks)
    assert len(await store.conversations()) == 50
    frames = ((tmp_path / 'agents.db-wal').stat().st_size - wal) // 1048  # a page and its header
    assert frames < 50


async def test_large_groups_of_commits_are_split_into_several_transactions(
    store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_threads, '_MAX_GROUP', 20)
    other = sqlite3.connect(tmp_path / 'agents.db', isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    tasks = [asyncio.ensure_future(store.commit(conversation())) for _ in range(50)]
    for _ in range(5):
        await asyncio.sleep(0)
    other.execute('ROLLBACK')
    other.close()
    await asyncio.gather(*tasks)
    assert len(await store.conversations()) == 50


async def test_failed_commit_does_not_undo_others_in_its_transaction(store: SqlStore) -> None:
    root = await Dialogue(store).begin()
    commits = [store.commit(Commit(versions=[root])) if n % 2 else store.commit(conversation()) for n in range(10)]
    results = await asyncio.gather(*commits, return_exceptions=True)
    assert [isinstance(result, ValueError) for result in results] == [bool(n % 2) for n in range(10)]
    assert len(await store.conversations()) == 6


async def test_no_thread_is_left_after_closing(tmp_path: Path) -> None:
    before = {thread for thread in threading.enumerate() if thread.name == 'pydantic-deep-store'}
    async with SqlStore(await SqliteEngine.open(tmp_path / 'agents.db')) as store:
        await store.commit(conversation())
        await asyncio.gather(*(store.count() for _ in range(10)))
    assert {thread for thread in threading.enumerate() if thread.name == 'pydantic-deep-store'} <= before
    assert not list((tmp_path / 'agents.db.owners').iterdir())


class _Rows:
    """Result of an operation that supports weak references."""


@pytest.mark.parametrize('kind', ['read', 'write'])
async def test_engine_does_not_hold_results_of_operations(tmp_path: Path, kind: str) -> None:
    def returns() -> Operation[_Rows]:
        yield Statement('SELECT 1')
        return _Rows()

    engine = await SqliteEngine.open(tmp_path / 'agents.db')
    returned = weakref.ref(await (engine.read(returns) if kind == 'read' else engine.write(returns)))
    for _ in range(1000):
        if returned() is None:
            break
        await asyncio.sleep(0.01)
    assert returned() is None
    await engine.aclose()


async def test_pending_commits_are_finished_before_closing(tmp_path: Path) -> None:
    store = SqlStore(await SqliteEngine.open(tmp_path / 'agents.db'))
    tasks = [asyncio.ensure_future(store.commit(conversation())) for _ in range(600)]
    await asyncio.sleep(0)
    await store.aclose()
    await asyncio.gather(*tasks)
    async with SqlStore(await SqliteEngine.open(tmp_path / 'agents.db')) as store:
        assert len(await store.conversations(limit=1000)) == 600


async def test_waiter_with_a_closed_loop_does_not_block_others(tmp_path: Path) -> None:
    store = SqlStore(await SqliteEngine.open(tmp_path / 'agents.db'))
    blocker = sqlite3.connect(tmp_path / 'agents.db', isolation_level=None, check_same_thread=False)
    blocker.execute('BEGIN IMMEDIATE')

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(store.commit(conversation()))
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()

    await asyncio.to_thread(abandon)
    blocker.execute('ROLLBACK')
    blocker.close()
    await store.commit(conversation())
    assert len(await store.conversations()) == 2
    await store.aclose()


async def test_full_disk_fails_all_pending_commits_and_the_store_recovers(store: SqlStore) -> None:
    await store.commit(conversation())
    await store.engine.write(lambda: statement('PRAGMA max_page_count = 1'))
    assets = [sample_asset(os.urandom(1_000_000)) for _ in range(3)]
    results = await asyncio.gather(*(store.commit(Commit(assets=[each])) for each in assets), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailableError] * 3
    assert all('The disk is full' in str(result) for result in results)
    assert await store.has_assets([each.digest for each in assets]) == set()
    await store.engine.write(lambda: statement('PRAGMA max_page_count = 1000000'))
    await store.commit(Commit(assets=assets))
    assert len(await store.has_assets([each.digest for each in assets])) == 3


async def test_failed_transaction_is_not_acknowledged(store: SqlStore, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / 'agents.db', isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    tasks: list[asyncio.Task[Committed] | asyncio.Task[None]] = [
        asyncio.ensure_future(store.commit(Commit(versions=[Dialogue(store).version()]))),
        asyncio.ensure_future(store.commit(conversation())),
        asyncio.ensure_future(store.engine.write(lambda: statement('ROLLBACK', 'SELECT * FROM nowhere'))),
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    other.execute('ROLLBACK')
    other.close()
    await asyncio.wait(tasks)
    assert isinstance(tasks[0].exception(), ValueError)
    assert isinstance(tasks[2].exception(), StoreUnavailableError)
    was_acknowledged = tasks[1].exception() is None
    assert len(await store.conversations()) == int(was_acknowledged)


async def test_operation_that_ends_the_transaction_fails_and_the_store_keeps_working(store: SqlStore) -> None:
    with pytest.raises(StoreUnavailableError):
        await store.engine.write(lambda: statement('ROLLBACK', 'SELECT * FROM nowhere'))
    await store.commit(conversation())
    assert len(await store.conversations()) == 1


class Undecodable:
    """Connection with error messages that are not UTF-8, as with a damaged column name."""

    def __init__(self) -> None:
        self.is_closed = False

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> object:
        raise UnicodeDecodeError('utf-8', b'\xff', 0, 1, 'invalid start byte')

    def close(self) -> None:
        self.is_closed = True


def test_undecodable_sqlite_messages_are_damage() -> None:
    def select() -> Operation[None]:
        yield Statement('SELECT 1')

    connection = Undecodable()
    with pytest.raises(StoreCorruptedError, match='invalid UTF-8'):
        run_operation(cast('sqlite3.Connection', connection), select())
    with pytest.raises(sqlite3.DatabaseError, match='the schema contains invalid UTF-8'):
        sqlite._configured(cast('sqlite3.Connection', connection))  # pyright: ignore[reportPrivateUsage]
    assert connection.is_closed
