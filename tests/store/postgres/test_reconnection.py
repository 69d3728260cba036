"""Operations wait for a lost server, and go on; the owner takes its lock again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable

import anyio
import pytest

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import StoreClosedError, StoreUnavailableError, open_store
from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.postgres import PostgresEngine
from pydantic_deep.store.postgres._driver import connect

from .proxy import Proxy

pytestmark = pytest.mark.anyio

COUNT = Statement('SELECT COUNT(*) FROM x')
INSERT = Statement('INSERT INTO x VALUES (1)')


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncGenerator[Proxy]:
    await execute(postgres_url, 'CREATE SCHEMA agents')
    async with Proxy(postgres_url).open() as proxy:
        proxy.url += '?search_path=agents'
        yield proxy


@pytest.fixture
async def engine(proxy: Proxy) -> AsyncGenerator[PostgresEngine]:
    opened = await PostgresEngine.open(proxy.url)
    await opened.write(doing(Statement('CREATE TABLE x (i BIGINT)')))
    yield opened
    await opened.aclose()


def doing(*statements: Statement) -> Callable[[], Operation[list[Row]]]:
    """Return an operation of statements that returns the rows of the last."""

    def operation() -> Operation[list[Row]]:
        rows: list[Row] = []
        for statement in statements:
            rows = yield statement
        return rows

    return operation


def lose(proxy: Proxy) -> None:
    """Make the server unreachable."""
    proxy.cut = 'always'
    proxy.cut_all()


async def execute(url: str, sql: str) -> None:
    """Execute a statement on a connection of its own."""
    connection = await connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


async def ended(url: str) -> None:
    """Make the server end all other connections to a database."""
    others = 'FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()'
    await execute(url, f'SELECT pg_terminate_backend(pid) {others}')


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a change that nothing reports."""
    with anyio.fail_after(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def until_lost(engine: PostgresEngine) -> None:
    """Wait until the engine has noticed that it lost its connections, while it cannot connect."""
    await until(lambda: not engine._reconnection.is_connected)  # pyright: ignore[reportPrivateUsage]


async def until_connected(engine: PostgresEngine) -> None:
    """Wait until the engine has connected again after a loss."""
    await until(lambda: engine._reconnection.connected_at > 0)  # pyright: ignore[reportPrivateUsage]


async def test_operations_wait_for_a_lost_server_and_go_on(
    engine: PostgresEngine, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    lose(proxy)
    await until_lost(engine)
    tasks = [asyncio.create_task(engine.write(doing(INSERT))) for _ in range(20)]
    tasks.append(asyncio.create_task(engine.read(doing(COUNT))))
    await until(lambda: 'is unreachable, and is waited for (30 seconds at most)' in caplog.text)
    assert not any(task.done() for task in tasks)
    proxy.cut = 'never'
    await asyncio.gather(*tasks)
    assert await engine.read(doing(COUNT)) == [(20,)]
    assert [record.levelno for record in caplog.records] == [logging.WARNING], 'one message for each outage'


async def test_wait_has_a_limit(proxy: Proxy) -> None:
    engine = await PostgresEngine.open(proxy.url, wait_seconds=0.05)
    lose(proxy)
    with pytest.raises(StoreUnavailableError, match=r'This did not change within 0\.05 seconds\. Make sure'):
        await engine.read(doing(Statement('SELECT 1')))
    begun: list[int] = []

    def operation() -> Operation[None]:
        begun.append(1)
        yield Statement('SELECT 1')

    with pytest.raises(StoreUnavailableError, match='cannot be used'):
        await engine.write(operation)
    assert begun == [], 'it did not reach the server'
    proxy.cut = 'never'
    await until_connected(engine)
    assert await engine.read(doing(Statement('SELECT 1'))) == [(1,)]
    await engine.aclose()


async def test_operation_that_always_loses_its_connection_fails(
    proxy: Proxy, let_time_pass: Callable[[float], None]
) -> None:
    engine = await PostgresEngine.open(proxy.url, wait_seconds=30)
    begun: list[int] = []

    def operation() -> Operation[None]:
        begun.append(1)
        if len(begun) == 3:
            let_time_pass(30)
        yield Statement('SELECT pg_terminate_backend(pg_backend_pid())')

    with pytest.raises(StoreUnavailableError, match='within 30 seconds'):
        await engine.write(operation)
    assert len(begun) == 3
    await engine.aclose()


async def test_cancellation_ends_the_wait_at_once(engine: PostgresEngine, proxy: Proxy) -> None:
    lose(proxy)
    await until_lost(engine)
    task = asyncio.create_task(engine.write(doing(INSERT)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    proxy.cut = 'never'
    assert await engine.read(doing(COUNT)) == [(0,)], 'it is not written later'


async def test_closing_ends_the_wait(engine: PostgresEngine, proxy: Proxy) -> None:
    lose(proxy)
    await until_lost(engine)
    task = asyncio.create_task(engine.read(doing(COUNT)))
    await asyncio.sleep(0)
    await engine.aclose()
    with pytest.raises(StoreClosedError):
        await task


async def test_duration_is_checked(proxy: Proxy) -> None:
    with pytest.raises(DeepAgentError, match='wait_seconds'):
        async with open_store(proxy.url, wait_seconds=-1):
            pass  # pragma: no cover - it is not opened


async def test_lost_commit_that_was_applied_returns_its_result(engine: PostgresEngine, proxy: Proxy) -> None:
    begun: list[int] = []

    def operation() -> Operation[list[Row]]:
        begun.append(1)
        yield INSERT
        return (yield COUNT)

    proxy.cut = 'after COMMIT'
    assert await engine.write(operation) == [(1,)]
    assert (len(begun), await engine.read(doing(COUNT))) == (1, [(1,)])


async def test_lost_commit_that_was_not_applied_is_repeated(engine: PostgresEngine, proxy: Proxy) -> None:
    proxy.cut = 'before COMMIT'
    assert await engine.write(doing(INSERT, COUNT)) == [(1,)]
    assert await engine.read(doing(COUNT)) == [(1,)]


async def test_lost_commit_is_decided_after_an_outage(engine: PostgresEngine, proxy: Proxy) -> None:
    proxy.cut, proxy.after_cut = 'after COMMIT', 'always'
    task = asyncio.create_task(engine.write(doing(INSERT, COUNT)))
    await until_lost(engine)
    proxy.cut_all()
    proxy.cut = 'never'
    assert await task == [(1,)]
    assert await engine.read(doing(COUNT)) == [(1,)]


async def test_owner_takes_its_lock_again_without_any_operation(
    engine: PostgresEngine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('pydantic_deep.store.postgres._engine._RETURN_SECONDS', 0)  # looks at once
    other = await PostgresEngine.open(f'{postgres_url}&search_path=agents')
    connection = await connect(postgres_url)
    locks = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
    before = {row[0] for row in await connection.fetch(locks)}
    assert await other.living_owners([engine.owner]) == {engine.owner}
    await connection.fetch(f'SELECT pg_terminate_backend(pid) FROM ({locks}) AS holders')
    with anyio.fail_after(30):
        while before & {row[0] for row in await connection.fetch(locks)}:
            pass
        while not await other.living_owners([engine.owner]):
            pass
    await connection.close()
    await other.aclose()


async def test_owners_have_time_to_take_their_locks_again(
    engine: PostgresEngine, proxy: Proxy, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that has just connected again looks for missing owners until they had time to connect."""
    other = await PostgresEngine.open(f'{postgres_url}&search_path=agents')
    await ended(postgres_url)
    await until_connected(other)
    lose(proxy)
    looking = asyncio.create_task(other.living_owners([engine.owner]))
    await until_lost(engine)
    proxy.cut = 'never'
    assert await looking == {engine.owner}
    monkeypatch.setattr('pydantic_deep.store.postgres._engine._RETURN_SECONDS', 0.2)  # waits for nobody for long
    assert await other.living_owners(['nobody', other.owner]) == {other.owner}
    await other.aclose()


async def test_server_that_refuses_is_not_waited_for(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    await execute(postgres_url, 'CREATE ROLE guest LOGIN SUPERUSER')
    engine = await PostgresEngine.open(postgres_url.replace('postgres@', 'guest@'))
    await execute(postgres_url, 'ALTER ROLE guest NOLOGIN')
    await ended(postgres_url)
    await until(lambda: 'refuses connections' in caplog.text)
    with pytest.raises(StoreUnavailableError, match='Check the role'):
        await engine.read(doing(Statement('SELECT 1')))
    await execute(postgres_url, 'ALTER ROLE guest LOGIN')
    assert await engine.write(doing(Statement('SELECT 1'))) == [(1,)]
    await engine.aclose()
    await execute(postgres_url, 'DROP OWNED BY guest; DROP ROLE guest')


@pytest.mark.slow
async def test_reader_connects_again(engine: PostgresEngine, proxy: Proxy) -> None:
    reader = await PostgresEngine.open(proxy.url, read_only=True)
    assert await reader.read(doing(COUNT)) == [(0,)]
    lose(proxy)
    task = asyncio.create_task(reader.read(doing(COUNT)))
    await until_lost(reader)
    proxy.cut = 'never'
    assert await task == [(0,)]
    await reader.aclose()


async def test_error_of_an_operation_is_not_one_of_the_connection(engine: PostgresEngine) -> None:
    begun: list[int] = []

    def operation() -> Operation[None]:
        begun.append(1)
        yield COUNT
        raise FileNotFoundError('no backup')

    with pytest.raises(FileNotFoundError, match='no backup'):
        await engine.write(operation)
    assert len(begun) == 1
