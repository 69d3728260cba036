"""PostgreSQL with lost connections, crashed servers, wrong passwords and full disks. Acknowledged commits survive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from urllib.parse import urlsplit

import anyio
import pytest

from pydantic_deep.store import (
    Append,
    BranchRecord,
    Commit,
    ConversationRecord,
    NewMessage,
    RunRecord,
    RunTakenOverError,
    SqlStore,
    StoreUnavailableError,
    UnknownCommitError,
    VersionRecord,
    new_id,
    open_store,
)
from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.postgres import PostgresEngine
from pydantic_deep.store.postgres._driver import connect

from .proxy import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

Ask = Callable[[str], str]
END_OTHERS = 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()'
BASE = VersionRecord(
    *('', 0, None, None, None, 'step', 'complete', 'c', 'b', 'main', 0, None, 'analyst', None, '{}', None, '{}', '{}'),
    *(None, None, None, None, None, 1),
)


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncGenerator[Proxy]:
    async with Proxy(postgres_url).open() as proxy:
        yield proxy


def beginning(run_id: str = 'r') -> Commit:
    return Commit(
        conversations=[ConversationRecord('c', 'analyst', None, 1)],
        branches=[BranchRecord('b', 'c', 'main', None, 0, 0, None, None, 1)],
        runs=[run(run_id)],
    )


def run(id: str) -> RunRecord:
    values = (id, 'c', None, 'analyst', None, None, 'running', None, None, '{}', '{}')
    return RunRecord(*values, None, None, None, 1, None)


def step(index: int) -> Commit:
    """A commit of a version with two messages."""
    messages = [NewMessage(id=new_id(), body=b'"ask"'), NewMessage(id=new_id(), body=b'"answer"')]
    version = BASE._replace(id=new_id(), message_count=index * 2 + 2, run_id='r')
    return Commit(
        fence='r',
        append=Append(branch_id='b', at=index * 2, messages=messages, fork_id=new_id()),
        versions=[version],
    )


async def ended(url: str) -> None:
    """Make the server terminate all other connections to a database, as an administrator would."""
    connection = await connect(url)
    others = 'SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()'
    pids = {row[0] for row in await connection.fetch(others)}
    await connection.fetch(f'{END_OTHERS} AND pid <> pg_backend_pid()')
    with anyio.fail_after(60):
        while not pids.isdisjoint([row[0] for row in await connection.fetch(others)]):
            pass  # they end asynchronously, while stores connect again
    await connection.close()


async def test_unknown_commit_is_refused_when_repeated_if_it_was_applied(proxy: Proxy) -> None:
    async with open_store(proxy.url, wait_seconds=0) as store:
        await store.commit(beginning())
        commit = step(0)
        proxy.cut, proxy.after_cut = 'after COMMIT', 'always'
        with pytest.raises(UnknownCommitError, match='unknown whether the commit was applied'):
            await store.commit(commit)
        proxy.cut = 'never'
        assert (await store.version(commit.versions[0].id)).message_count == 2, 'it did'
        with pytest.raises(ValueError, match=f'The version {commit.versions[0].id!r}, .* exists already'):
            await store.commit(commit)
        assert len(await store.messages('b', 100)) == 2
        assert len(await store.branches('c')) == 1


async def test_commit_acknowledged_before_the_connection_ended_is_applied_once(proxy: Proxy) -> None:
    async with open_store(proxy.url) as store:
        await store.commit(beginning())
        for index in range(5):
            proxy.cut = 'after the answer'
            await store.commit(step(index))
        assert await store.count() == 5


async def test_connection_lost_before_a_commit_is_replaced_silently(proxy: Proxy) -> None:
    async with open_store(proxy.url) as store:
        await store.commit(beginning())
        for index in range(3):
            proxy.cut_all()
            await store.commit(step(index))
        proxy.cut_all()
        assert await store.count() == 3


async def test_operation_is_restarted_if_its_connection_is_lost(postgres_url: str) -> None:
    engine = await PostgresEngine.open(postgres_url)
    begun: list[int] = []

    def operation() -> Operation[list[Row]]:
        begun.append(1)
        yield Statement('CREATE TABLE x (i BIGINT)')
        if len(begun) == 1:
            yield Statement('SELECT pg_terminate_backend(pg_backend_pid())')
        return (yield Statement('SELECT COUNT(*) FROM x'))

    assert await engine.write(operation) == [(0,)]
    assert len(begun) == 2
    await engine.aclose()


async def test_unreachable_server_raises_until_it_is_back_without_a_wait(proxy: Proxy) -> None:
    async with open_store(proxy.url, wait_seconds=0) as store:
        await store.commit(beginning())
        proxy.cut = 'always'
        proxy.cut_all()
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match='The next operation connects again') as caught:
                await store.commit(step(0))
            assert not isinstance(caught.value, UnknownCommitError)
        with pytest.raises(StoreUnavailableError):
            await store.count()
        proxy.cut = 'never'
        await store.commit(step(0))
        assert await store.count() == 1


@pytest.mark.parametrize(
    ('code', 'advice'),
    [
        ('53100', 'Make room on the disk of the server'),
        ('53300', 'raise `max_connections`'),
        ('XX001', 'restore them from a backup'),
        ('22012', 'See the log of the server'),
    ],
)
async def test_server_errors_include_advice(postgres_url: str, code: str, advice: str) -> None:
    async with open_store(postgres_url) as store:
        await store.commit(beginning())
        connection = await connect(postgres_url)
        await connection.execute(
            'CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS'
            f" $$ BEGIN RAISE EXCEPTION 'it failed' USING ERRCODE = '{code}'; END $$;"
            'CREATE TRIGGER fail BEFORE INSERT ON version EXECUTE FUNCTION fail()'
        )
        with pytest.raises((StoreUnavailableError, ValueError), match='it failed') as caught:
            await store.commit(step(0))
        assert advice in str(caught.value) or code == '22012'
        assert await store.messages('b', 100) == [], 'nothing of the commit is there'
        await connection.execute('DROP TRIGGER fail ON version')
        await connection.close()
        await store.commit(step(0))


async def test_conflicting_transaction_is_tried_ten_times(postgres_url: str) -> None:
    engine = await PostgresEngine.open(postgres_url)
    begun: list[int] = []

    def operation(failures: int) -> Operation[int]:
        begun.append(1)
        if len(begun) <= failures:
            yield Statement("DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$")
        yield Statement('SELECT 1')
        return len(begun)

    assert await engine.write(lambda: operation(9)) == 10
    begun.clear()
    with pytest.raises(StoreUnavailableError, match='deadlock'):
        await engine.write(lambda: operation(10))
    assert len(begun) == 10
    await engine.aclose()


async def test_write_runs_alone_after_its_third_conflict(postgres_url: str) -> None:
    """Nothing can conflict with it then, however many writes there are."""
    engine = await PostgresEngine.open(postgres_url)
    held: list[object] = []

    def operation() -> Operation[None]:
        modes = yield Statement("SELECT mode FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        held.extend(mode for [mode] in modes)
        if len(held) < 5:
            yield Statement("DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$")

    await engine.write(operation)
    assert held == ['ShareLock', 'ShareLock', 'ShareLock', 'ExclusiveLock', 'ExclusiveLock']
    held.clear()
    await engine.write(operation)
    assert held[:1] == ['ShareLock'], 'the next write has its own count'
    await engine.aclose()


async def test_read_only_server_raises_with_advice(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        await store.commit(beginning())
    async with open_store(f'{postgres_url}&default_transaction_read_only=on') as store:
        with pytest.raises(StoreUnavailableError, match='Connect to the primary'):
            await store.commit(Commit(runs=[run('other')]))
        assert await store.count() == 0
    with pytest.raises(StoreUnavailableError, match='cannot be used'):
        await PostgresEngine.open(f'{postgres_url}&target_session_attrs=standby')


async def test_wrong_password_is_not_shown(postgres_url: str) -> None:
    with pytest.raises(StoreUnavailableError, match='password authentication failed') as caught:
        await PostgresEngine.open(postgres_url.replace('postgres@', 'locked:not%23this@'))
    assert 'Check the role and its password' in str(caught.value)
    assert 'this' not in str(caught.value)


async def test_role_without_permissions_raises_with_advice(postgres_url: str) -> None:
    with pytest.raises(StoreUnavailableError, match='Let the role create tables in the schema'):
        await PostgresEngine.open(postgres_url.replace('postgres@', 'locked:secret%2F%23%3F%40@'))


async def test_missing_database_is_not_created(postgres_url: str) -> None:
    with pytest.raises(StoreUnavailableError, match=r'database "nowhere" does not exist\. Create it'):
        await PostgresEngine.open(postgres_url.replace(urlsplit(postgres_url).path, '/nowhere'))


async def test_terminated_connections_do_not_lose_ownership_of_runs(postgres_url: str) -> None:
    async with open_store(postgres_url) as store, open_store(postgres_url) as other:
        await store.commit(beginning())
        await ended(postgres_url)
        await store.commit(step(0))
        assert await other.orphans() == []
        assert not await other.claim_run('r')


async def test_run_taken_over_during_a_disconnect_is_lost(postgres_url: str, proxy: Proxy) -> None:
    async with open_store(postgres_url) as other, open_store(proxy.url) as store:
        await store.commit(beginning())
        await store.commit(Commit(runs=[run('kept')]))
        proxy.cut = 'always'
        proxy.cut_all()
        with anyio.fail_after(60):
            while not await other.claim_run('r'):  # noqa: ASYNC110 - until the server has noticed
                await asyncio.sleep(0.01)
        proxy.cut = 'never'
        with pytest.raises(RunTakenOverError):
            await store.commit(step(0))
        assert not await other.claim_run('kept'), 'the write took the lock again'
        await store.commit(Commit(fence='kept'))


async def test_acknowledged_commits_survive_server_crashes(ask_durable_postgres: Ask) -> None:
    """Four writers commit while the server crashes three times. Each commit is applied once."""
    url = ask_durable_postgres('database')
    acknowledged: list[str] = []

    async def write(store: SqlStore, name: str) -> None:
        await store.commit(
            Commit(
                conversations=[ConversationRecord(name, 'analyst', None, 1)],
                branches=[BranchRecord(name, name, 'main', None, 0, 0, None, None, 1)],
            )
        )
        for index in range(40):
            commit = step(index)
            assert commit.append is not None
            version = commit.versions[0]._replace(conversation_id=name, branch_id=name, run_id=None)
            append = Append(
                branch_id=name, at=commit.append.at, messages=commit.append.messages, fork_id=commit.append.fork_id
            )
            await store.commit(Commit(append=append, versions=[version]))
            acknowledged.append(version.id)

    async def crash() -> None:
        for goal in (20, 60, 100):
            while len(acknowledged) < goal:  # noqa: ASYNC110 - in the middle of commits
                await asyncio.sleep(0)
            await asyncio.to_thread(ask_durable_postgres, 'stop')
            await asyncio.to_thread(ask_durable_postgres, 'start')

    async with open_store(url) as store:
        await asyncio.gather(crash(), *(write(store, f'w{number}') for number in range(4)))
        found = await store.versions(limit=1000)
        assert sorted(each.id for each in found) == sorted(acknowledged)
        for name in ('w0', 'w1', 'w2', 'w3'):
            assert len(await store.branches(name)) == 1
            assert [each.seq for each in await store.messages(name, 1000)] == list(range(80))
