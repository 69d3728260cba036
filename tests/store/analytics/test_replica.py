"""Replicas in files, which can be deleted and rebuilt, and exports."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import duckdb
import pytest

import pydantic_deep.store as package
from pydantic_deep.store import (
    Append,
    BranchRecord,
    Commit,
    ConversationRecord,
    NewMessage,
    SqlStore,
    StoreClosedError,
    StoreFormatError,
    StoreUnavailableError,
    VersionRecord,
    analytics,
    new_id,
    open_store,
)
from pydantic_deep.store.analytics import Analytics, Table, export_parquet
from pydantic_deep.store.analytics._database import DatabaseError
from pydantic_deep.store.analytics._follower import Follower
from pydantic_deep.store.analytics._replica import Change, Query, Replica
from pydantic_deep.store.analytics._schema import CONVERSATIONS

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def say(store: SqlStore, text: str) -> None:
    """Start a conversation with one message."""
    conversation_id, branch_id = new_id(), new_id()
    version = VersionRecord(
        id=new_id(), number=0, parent_id=None, cloned_from=None, merged_from=None, kind='turn', state='complete',
        conversation_id=conversation_id, branch_id=branch_id, branch='main', message_count=1, run_id=None,
        agent_name='analyst', name=None, metadata='{}', model=None, model_settings='{}', usage='{}', output=None,
        pending=None, deps=None, tree=None, backend=None, created_at=1,
    )  # fmt: skip
    body = json.dumps({'kind': 'request', 'parts': [{'part_kind': 'user-prompt', 'content': text}]}).encode()
    message = NewMessage(id=new_id(), body=body)
    await store.commit(
        Commit(
            conversations=[ConversationRecord(conversation_id, 'analyst', None, 1)],
            branches=[BranchRecord(branch_id, conversation_id, 'main', None, 0, 0, None, None, 1)],
            append=Append(branch_id=branch_id, at=0, messages=[message], fork_id=new_id()),
            versions=[version],
        )
    )


async def texts(analytics: Analytics) -> list[object]:
    return [text for (text,) in await analytics.sql('SELECT text FROM messages ORDER BY number')]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as opened:
        await say(opened, 'one')
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / 'replica.duckdb'


def forget(path: Path, text: str = 'one') -> None:
    """Change a message in a replica, to detect whether the replica was rebuilt."""
    with duckdb.connect(str(path)) as connection:
        connection.execute('UPDATE messages SET text = ? WHERE text = ?', ['remembered', text])


async def test_replica_file_is_continued_by_the_next_process(store: SqlStore, path: Path) -> None:
    async with Analytics(store, path) as analytics:
        assert await texts(analytics) == ['one']
    forget(path)
    await say(store, 'two')
    async with Analytics(store, path) as analytics:
        assert await texts(analytics) == ['remembered', 'two']


async def test_deleted_replica_file_is_rebuilt(store: SqlStore, path: Path) -> None:
    async with Analytics(store, path) as analytics:
        await texts(analytics)
    path.unlink()
    async with Analytics(store, path) as analytics:
        assert await texts(analytics) == ['one']


@pytest.mark.parametrize('start', [0, 4096, 8192, 12288])
async def test_damaged_replica_file_is_rebuilt(store: SqlStore, path: Path, start: int) -> None:
    async with Analytics(store, path) as analytics:
        await texts(analytics)
    contents = bytearray(path.read_bytes())
    contents[start : start + 2000] = b'x' * 2000
    path.write_bytes(contents)
    async with Analytics(store, path) as analytics:
        assert await texts(analytics) == ['one']


async def test_truncated_replica_file_is_rebuilt(store: SqlStore, path: Path) -> None:
    async with Analytics(store, path) as analytics:
        await texts(analytics)
    path.write_bytes(path.read_bytes()[:20_000])
    async with Analytics(store, path) as analytics:
        assert await texts(analytics) == ['one']


async def test_replica_file_of_another_format_is_rebuilt(store: SqlStore, path: Path) -> None:
    async with Analytics(store, path) as analytics:
        await texts(analytics)
    forget(path)
    with duckdb.connect(str(path)) as connection:
        connection.execute('UPDATE internal.replica SET format = 0')
    async with Analytics(store, path) as analytics:
        assert await texts(analytics) == ['one']


async def test_replica_file_of_another_store_is_rebuilt(store: SqlStore, path: Path) -> None:
    async with Analytics(store, path) as analytics:
        await texts(analytics)
    async with open_store('memory:') as other:
        await say(other, 'other')
        async with Analytics(other, path) as analytics:
            assert await texts(analytics) == ['other']


@pytest.mark.parametrize('contents', [b'', b'text', b'SQLite format 3\0'])
async def test_foreign_file_is_not_overwritten(store: SqlStore, path: Path, contents: bytes) -> None:
    path.write_bytes(contents)
    async with Analytics(store, path) as analytics:
        with pytest.raises(StoreFormatError, match='not a replica'):
            await analytics.sql('SELECT 1')
    assert path.read_bytes() == contents


async def test_file_of_the_store_is_refused_as_a_replica(store: SqlStore, tmp_path: Path) -> None:
    async with Analytics(store, tmp_path / 'agents.db') as analytics:
        with pytest.raises(StoreFormatError):
            await analytics.sql('SELECT 1')
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as connection, connection:
        assert list(connection.execute('SELECT count(*) FROM message')) == [(1,)]
    connection.close()


async def test_replica_file_has_one_owner(store: SqlStore, path: Path) -> None:
    async with Analytics(store, path) as analytics:
        await texts(analytics)
        async with Analytics(store, path) as second:
            with pytest.raises(StoreUnavailableError, match='Another process'):
                await texts(second)
        assert await texts(analytics) == ['one']
    async with Analytics(store, path) as third:
        assert await texts(third) == ['one']


@pytest.mark.slow
async def test_another_process_may_follow_the_same_store(store: SqlStore, path: Path, tmp_path: Path) -> None:
    program = (
        'import asyncio, sys\n'
        'from pydantic_deep.store import open_store\n'
        'async def main():\n'
        '    async with open_store(sys.argv[1]) as store:\n'
        '        print(len(await store.sql("FROM messages")))\n'
        'asyncio.run(main())\n'
    )
    async with Analytics(store, path) as analytics:
        await texts(analytics)
        done = await anyio.run_process([sys.executable, '-c', program, f'sqlite:///{tmp_path}/agents.db'])
    assert done.stdout == b'1\n'


async def test_unwritable_directory_is_reported(store: SqlStore, tmp_path: Path) -> None:
    async with Analytics(store, tmp_path / 'nowhere' / 'replica.duckdb') as analytics:
        with pytest.raises(StoreUnavailableError, match='No such file or directory'):
            await analytics.sql('SELECT 1')


async def test_failing_replica_raises_and_is_rebuilt(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(replica: Replica) -> object:
        raise DatabaseError('No space left on device')

    monkeypatch.setattr(Replica, 'survey', full)
    async with Analytics(store, path) as analytics:
        with pytest.raises(StoreUnavailableError, match='No space left on device'):
            await analytics.sql('SELECT 1')
        monkeypatch.undo()
        assert await texts(analytics) == ['one']


async def test_replica_is_rebuilt_after_its_process_ended(store: SqlStore) -> None:
    async with Analytics(store) as analytics:
        await texts(analytics)
        end_process(analytics)
        assert await texts(analytics) == ['one']


async def test_replica_is_rebuilt_after_its_process_ended_during_a_query(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Analytics(store) as analytics:
        await texts(analytics)
        run = Query.run

        def run_without_a_process(query: Query, replica: Replica) -> Table:
            monkeypatch.undo()
            end_process(analytics)
            return run(query, replica)

        monkeypatch.setattr(Query, 'run', run_without_a_process)
        assert await texts(analytics) == ['one']


def end_process(analytics: Analytics) -> None:
    """Kill only the process that holds a replica."""
    opened = analytics._opened  # pyright: ignore[reportPrivateUsage] - to kill its process
    assert opened is not None
    process = opened.replica._connection._process  # pyright: ignore[reportPrivateUsage]
    process.kill()
    process.wait()


async def test_closed_analytics_raise(store: SqlStore, path: Path) -> None:
    analytics = Analytics(store, path)
    await analytics.aclose()
    with pytest.raises(StoreClosedError):
        await analytics.sql('SELECT 1')
    await analytics.aclose()


async def test_replica_is_usable_after_a_cancelled_update(store: SqlStore) -> None:
    for number in range(30):
        await say(store, str(number))
    async with Analytics(store) as analytics:
        for delay in (0, 0.001, 0.003, 0.01, 0.02):
            task = asyncio.create_task(analytics.sql('SELECT 1'))
            await asyncio.wait([task], timeout=delay)
            task.cancel()
            await asyncio.wait([task])
        assert len(await texts(analytics)) == 31


async def test_every_table_is_exported(store: SqlStore, tmp_path: Path) -> None:
    target = tmp_path / 'out' / 'parquet'
    exports = await export_parquet(store, target)
    assert {export.table: export.row_count for export in exports} == {
        'versions': 1,
        'messages': 1,
        'runs': 0,
        'requests': 0,
        'tool_calls': 0,
        'conversations': 1,
        'branches': 1,
        'delegations': 0,
        'approvals': 0,
        'file_changes': 0,
        'todos': 0,
    }
    assert sorted(target.iterdir()) == sorted(export.path for export in exports)
    rows = duckdb.execute(f"SELECT text FROM read_parquet('{target}/messages.parquet')").fetchall()
    assert rows == [('one',)]


async def test_export_replaces_the_previous_one(store: SqlStore, tmp_path: Path) -> None:
    target = tmp_path / "it's"
    await export_parquet(store, target)
    await say(store, 'two')
    assert (await export_parquet(store, target))[0].row_count == 2


async def test_failed_export_keeps_the_previous_one(
    store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await export_parquet(store, tmp_path / 'out')
    before = {path: path.read_bytes() for path in (tmp_path / 'out').iterdir()}

    def fail(replica: Replica, table: str, path: Path) -> int:
        path.write_bytes(b'half')
        raise DatabaseError('No space left on device')

    monkeypatch.setattr(Replica, 'copy_to', fail)
    with pytest.raises(StoreUnavailableError, match='No space left on device'):
        await export_parquet(store, tmp_path / 'out')
    assert {path: path.read_bytes() for path in (tmp_path / 'out').iterdir()} == before


async def test_export_without_a_process_raises(
    store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, 'executable', '/nowhere/python')
    with pytest.raises(StoreUnavailableError, match='no process can be started for DuckDB'):
        await export_parquet(store, tmp_path / 'out')
    assert list((tmp_path / 'out').iterdir()) == []


async def test_export_to_a_file_raises(store: SqlStore, tmp_path: Path) -> None:
    (tmp_path / 'out').write_text('')
    with pytest.raises(StoreUnavailableError, match='Nothing can be exported'):
        await export_parquet(store, tmp_path / 'out')


async def test_closed_store_raises_from_an_export(store: SqlStore, tmp_path: Path) -> None:
    await store.aclose()
    with pytest.raises(StoreClosedError):
        await export_parquet(store, tmp_path / 'out')
    assert list((tmp_path / 'out').iterdir()) == []


async def test_error_of_the_store_is_raised_unchanged_from_an_export(
    store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(follower: Follower) -> None:
        raise StoreUnavailableError('The server is gone.')

    monkeypatch.setattr(Follower, 'follow', gone)
    with pytest.raises(StoreUnavailableError, match='The server is gone'):
        await export_parquet(store, tmp_path / 'out')


def test_failed_change_is_rolled_back() -> None:
    replica = Replica()
    row = (1, 'c', 'analyst', None, 1)
    with pytest.raises(DatabaseError):
        replica.apply([Change(CONVERSATIONS, (), [row]), Change(CONVERSATIONS, (), [('no number', *row[1:])])])
    assert replica.survey()['conversation'] == (0, 0, 0)
    replica.apply([Change(CONVERSATIONS, (), [row])])
    assert replica.survey()['conversation'] == (1, 1, 0)
    replica.close()


def test_exporting_connection_can_only_access_its_directory(tmp_path: Path) -> None:
    place = tmp_path / 'place'
    place.mkdir()
    shutil.copy(__file__, tmp_path / 'secret.py')
    replica = Replica(place / 'replica.duckdb', writable=place)
    assert replica.copy_to('runs', place / 'runs.parquet') == 0
    for query in (f"FROM read_text('{tmp_path}/secret.py')", f"COPY runs TO '{tmp_path}/x.csv'"):
        with pytest.raises(DatabaseError, match='Permission Error'):
            replica._connection.execute(query)  # pyright: ignore[reportPrivateUsage] - no door leads there
    replica.close()


async def test_missing_duckdb_extra_is_named(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split('.')[0] in ('duckdb', '_duckdb')]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, 'duckdb', None)
    monkeypatch.setattr(package, 'analytics', analytics)  # the import also sets the attribute
    for name in [name for name in sys.modules if name.startswith(analytics.__name__)]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"pip install 'versioned-deep-agents\[duckdb\]'"):
        await store.sql('SELECT 1')
