"""The SQLite file engine: group commits, shutdown of threads, and errors with advice."""

# ruff: noqa: ASYNC220 - a process is started once, and talked to in a thread

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pydantic_deep.store import (
    Commit,
    Committed,
    ConversationRecord,
    SqlStore,
    StoreCorruptedError,
    StoreFormatError,
    StoreUnavailableError,
    new_id,
)
from pydantic_deep.store._samples import Dialogue, sample_asset, sample_run
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.store.sqlite import SqliteEngine, _threads
from pydantic_deep.store.sqlite._errors import translate_error
from pydantic_deep.store.sqlite._owner_lock import OwnerLock

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with SqlStore(await SqliteEngine.open(tmp_path / 'agents.db')) as store:
        yield store


def _statement(*sql: str) -> Operation[None]:
    for each in sql:
        yield Statement(each)


def _conversation() -> Commit:
    return Commit(conversations=[ConversationRecord(new_id(), 'analyst', None, 1)])


async def test_waiting_commits_share_a_transaction(store: SqlStore, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / 'agents.db', isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    tasks = [asyncio.ensure_future(store.commit(_conversation())) for _ in range(50)]
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
    tasks = [asyncio.ensure_future(store.commit(_conversation())) for _ in range(50)]
    for _ in range(5):
        await asyncio.sleep(0)
    other.execute('ROLLBACK')
    other.close()
    await asyncio.gather(*tasks)
    assert len(await store.conversations()) == 50


async def test_failed_commit_does_not_undo_others_in_its_transaction(store: SqlStore) -> None:
    root = await Dialogue(store).begin()
    commits = [store.commit(Commit(versions=[root])) if n % 2 else store.commit(_conversation()) for n in range(10)]
    results = await asyncio.gather(*commits, return_exceptions=True)
    assert [isinstance(result, ValueError) for result in results] == [bool(n % 2) for n in range(10)]
    assert len(await store.conversations()) == 6


async def test_no_thread_is_left_after_closing(tmp_path: Path) -> None:
    before = {thread for thread in threading.enumerate() if thread.name == 'pydantic-deep-store'}
    async with SqlStore(await SqliteEngine.open(tmp_path / 'agents.db')) as store:
        await store.commit(_conversation())
        await asyncio.gather(*(store.count() for _ in range(10)))
    assert {thread for thread in threading.enumerate() if thread.name == 'pydantic-deep-store'} <= before
    assert not list((tmp_path / 'agents.db.owners').iterdir())


async def test_closing_merges_the_log_into_the_file(tmp_path: Path) -> None:
    for _ in range(20):
        async with SqlStore(await SqliteEngine.open(tmp_path / 'agents.db')) as store:
            await store.commit(_conversation())
            await asyncio.gather(store.conversations(), store.conversations(), store.conversations())
        assert not (tmp_path / 'agents.db-wal').exists()


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
    tasks = [asyncio.ensure_future(store.commit(_conversation())) for _ in range(600)]
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
        task = loop.create_task(store.commit(_conversation()))
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()

    await asyncio.to_thread(abandon)
    blocker.execute('ROLLBACK')
    blocker.close()
    await store.commit(_conversation())
    assert len(await store.conversations()) == 2
    await store.aclose()


async def test_full_disk_fails_all_pending_commits_and_the_store_recovers(store: SqlStore) -> None:
    await store.commit(_conversation())
    await store.engine.write(lambda: _statement('PRAGMA max_page_count = 1'))
    assets = [sample_asset(os.urandom(1_000_000)) for _ in range(3)]
    results = await asyncio.gather(*(store.commit(Commit(assets=[each])) for each in assets), return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailableError] * 3
    assert all('The disk is full' in str(result) for result in results)
    assert await store.has_assets([each.digest for each in assets]) == set()
    await store.engine.write(lambda: _statement('PRAGMA max_page_count = 1000000'))
    await store.commit(Commit(assets=assets))
    assert len(await store.has_assets([each.digest for each in assets])) == 3


async def test_failed_transaction_is_not_acknowledged(store: SqlStore, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / 'agents.db', isolation_level=None)
    other.execute('BEGIN IMMEDIATE')
    tasks: list[asyncio.Task[Committed] | asyncio.Task[None]] = [
        asyncio.ensure_future(store.commit(Commit(versions=[Dialogue(store).version()]))),
        asyncio.ensure_future(store.commit(_conversation())),
        asyncio.ensure_future(store.engine.write(lambda: _statement('ROLLBACK', 'SELECT * FROM nowhere'))),
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


async def test_refused_statements_raise_and_the_store_keeps_working(store: SqlStore) -> None:
    for run in (store.engine.read, store.engine.write):
        with pytest.raises(StoreUnavailableError, match='no such table: nowhere') as caught:
            await run(lambda: _statement('SELECT * FROM nowhere'))
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert await store.count() == 0


async def test_operation_that_ends_the_transaction_fails_and_the_store_keeps_working(store: SqlStore) -> None:
    with pytest.raises(StoreUnavailableError):
        await store.engine.write(lambda: _statement('ROLLBACK', 'SELECT * FROM nowhere'))
    await store.commit(_conversation())
    assert len(await store.conversations()) == 1


async def test_damaged_file_raises(tmp_path: Path) -> None:
    path = tmp_path / 'agents.db'
    async with SqlStore(await SqliteEngine.open(path)) as store:
        for _ in range(200):
            await store.commit(_conversation())
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
        await store.commit(_conversation())
    await store.aclose()


@pytest.mark.parametrize(
    ('code', 'advice'),
    [
        (sqlite3.SQLITE_READONLY, 'cannot be written'), (sqlite3.SQLITE_FULL, 'Make room'),
        (sqlite3.SQLITE_BUSY, 'Another process'), (sqlite3.SQLITE_IOERR_FSYNC, 'The disk failed'),
        (sqlite3.SQLITE_PROTOCOL, 'Open the store again'),
    ],
)  # fmt: skip
def test_errors_include_advice(code: int, advice: str) -> None:
    error = sqlite3.OperationalError('it failed')
    error.sqlite_errorcode = code
    new = translate_error(error)
    assert advice in str(new)
    assert new.__cause__ is error


def test_file_that_is_not_a_database_is_a_format_error() -> None:
    error = sqlite3.DatabaseError('file is not a database')
    error.sqlite_errorcode = sqlite3.SQLITE_NOTADB
    assert type(translate_error(error)) is StoreFormatError


@pytest.mark.slow
async def test_runs_of_a_killed_process_are_orphans_immediately(tmp_path: Path, store: SqlStore) -> None:
    program = (
        'import asyncio, sys\n'
        'from pydantic_deep.store import *\n'
        'from pydantic_deep.store._samples import sample_run\n'
        'async def main():\n'
        '    async with open_store(sys.argv[1]) as store:\n'
        '        run = sample_run("c")\n'
        '        await store.commit(Commit(runs=[run]))\n'
        '        print(run.id, flush=True)\n'
        '        await asyncio.sleep(600)\n'
        'asyncio.run(main())\n'
    )
    with subprocess.Popen([sys.executable, '-c', program, store.url], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        run_id = (await asyncio.to_thread(child.stdout.readline)).strip()
        assert await store.orphans() == []
        child.kill()
        child.wait()
    assert [run.id for run in await store.orphans()] == [run_id]
    assert await store.claim_run(run_id) is True


def test_owner_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    living = OwnerLock(tmp_path / 'owners')
    (tmp_path / 'owners' / 'dead').touch()
    other = OwnerLock(tmp_path / 'owners')
    assert {path.name for path in (tmp_path / 'owners').iterdir()} == {living.owner, other.owner}
    assert other.living([living.owner, other.owner, 'dead', '../x/y', 'a\0']) == {living.owner, other.owner}
    living.release()
    assert other.living([living.owner]) == set()
    other.release()


def test_owner_lock_is_retaken_if_its_file_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    original = fcntl.flock
    swept: list[bool] = []

    def sweep_first(descriptor: int, operation: int) -> None:
        original(descriptor, operation)
        if operation == fcntl.LOCK_EX and not swept:
            swept.append(True)
            for path in (tmp_path / 'owners').iterdir():
                path.unlink()

    monkeypatch.setattr(fcntl, 'flock', sweep_first)
    lock = OwnerLock(tmp_path / 'owners')
    assert (tmp_path / 'owners' / lock.owner).exists()
    (tmp_path / 'owners' / lock.owner).unlink()
    lock.release()


async def test_orphans_with_cyclic_parents_are_found(tmp_path: Path, store: SqlStore) -> None:
    async with SqlStore(await SqliteEngine.open(tmp_path / 'agents.db')) as dead:
        ids = [new_id() for _ in range(3)]
        runs = [sample_run('c', id=ids[n], parent_run_id=ids[(n + 1) % 3]) for n in range(3)]
        await dead.commit(Commit(runs=runs))
    assert {run.id for run in await store.orphans()} == set(ids)


async def test_large_commit_is_prepared_in_a_thread(store: SqlStore) -> None:
    asset = sample_asset(b'large ' * 100_000)
    await store.commit(Commit(assets=[asset]))
    assert (await store.asset(asset.digest)).data == asset.data


async def test_lineage_with_a_missing_version_is_damage(store: SqlStore) -> None:
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    middle = await dialogue.add(root, b'1')
    leaf = await dialogue.add(middle, b'2')
    await store.engine.write(lambda: _statement(f'DELETE FROM version WHERE number = {middle.number}'))
    with pytest.raises(StoreCorruptedError, match='store is damaged') as caught:
        await store.lineage(leaf.id)
    assert (caught.value.table, caught.value.row) == ('version', middle.id)


async def test_asset_that_does_not_match_its_digest_is_damage(store: SqlStore) -> None:
    asset = sample_asset(b'right')
    await store.commit(Commit(assets=[asset]))
    await store.engine.write(lambda: _statement("UPDATE asset SET data = x'0077726f6e67'"))
    with pytest.raises(StoreUnavailableError, match='damaged'):
        await store.asset(asset.digest)


async def test_several_assets_are_read_at_once(store: SqlStore) -> None:
    assets = [sample_asset(b'%d' % n) for n in range(3)]
    await store.commit(Commit(assets=assets))
    found = await store.assets([*(each.digest for each in assets), sample_asset(b'missing').digest])
    assert {digest: each.data for digest, each in found.items()} == {each.digest: each.data for each in assets}
