"""The PostgreSQL engine without failures: queueing, consistent reads, owners, and translation of statements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack

import pytest

from pydantic_deep.store import (
    BranchRecord,
    Commit,
    ConversationRecord,
    Store,
    StoreClosedError,
    StoreFormatError,
    StoreUnavailableError,
    VersionRecord,
    new_id,
    open_store,
)
from pydantic_deep.store.conformance import OpenStore, StoreSuite
from pydantic_deep.store.engine import Operation, Row, Statement, Value
from pydantic_deep.store.postgres import PostgresEngine
from pydantic_deep.store.postgres._driver import connect

pytestmark = pytest.mark.anyio

START = Commit(
    conversations=[ConversationRecord('c', 'analyst', None, 1)],
    branches=[BranchRecord('b', 'c', 'main', None, 0, 0, None, None, 1)],
)
BASE = VersionRecord(
    *('', 0, None, None, None, 'step', 'complete', 'c', 'b', 'main', 0, None, 'analyst', None, '{}', None, '{}', '{}'),
    *(None, None, None, None, None, 1),
)


@pytest.fixture
async def engine(postgres_url: str) -> AsyncGenerator[PostgresEngine]:
    opened = await PostgresEngine.open(postgres_url)
    yield opened
    await opened.aclose()


def doing(*statements: Statement) -> Callable[[], Operation[list[list[Row]]]]:
    """Return an operation of statements that returns the rows of each."""

    def operation() -> Operation[list[list[Row]]]:
        rows: list[list[Row]] = []
        for statement in statements:
            rows.append((yield statement))
        return rows

    return operation


def version() -> Commit:
    return Commit(versions=[BASE._replace(id=new_id())])


async def test_values_round_trip(engine: PostgresEngine) -> None:
    values: tuple[Value, ...] = ('ä', 2**62, 0.5, b'\0\xff', None)
    await engine.write(doing(Statement('CREATE TABLE x (t TEXT, i BIGINT, f DOUBLE PRECISION, b BYTEA, n BIGINT)')))
    insert = Statement('INSERT INTO x VALUES (?1, ?2, ?3, ?4, ?5)', values)
    select = Statement('SELECT * FROM x WHERE i = ?2 AND t = ?1 AND i = ?2', ('ä', 2**62))
    assert (await engine.write(doing(insert, select)))[1] == [values]


async def test_many_runs_a_statement_for_each_set_of_parameters(engine: PostgresEngine) -> None:
    many = Statement('INSERT INTO x VALUES (?1)', (), [(1,), (2,)])
    rows = await engine.write(
        doing(Statement('CREATE TABLE x (i BIGINT)'), many, Statement('SELECT i FROM x ORDER BY i'))
    )
    assert rows == [[], [], [(1,), (2,)]]


async def test_value_that_is_too_large_is_refused(engine: PostgresEngine) -> None:
    with pytest.raises(ValueError, match=r'PostgreSQL cannot store a value: .*out of int64 range'):
        await engine.read(doing(Statement('SELECT CAST(?1 AS BIGINT)', (2**64,))))


async def test_operation_without_statements_needs_no_server(engine: PostgresEngine) -> None:
    assert await engine.read(doing()) == []
    assert await engine.write(doing()) == []


async def test_read_of_one_statement_needs_no_transaction(engine: PostgresEngine) -> None:
    isolation = Statement('SHOW transaction_isolation')
    assert await engine.read(doing(isolation)) == [[('read committed',)]]
    assert (await engine.read(doing(isolation, isolation)))[1] == [('repeatable read',)]
    assert await engine.read(doing(isolation)) == [[('repeatable read',)]], 'such operations have had several'


async def test_read_is_consistent_during_concurrent_writes(engine: PostgresEngine) -> None:
    async with open_store(engine.url) as store:
        await store.commit(START)
        count = Statement('SELECT COUNT(*) FROM version')
        write = asyncio.Event()

        def operation() -> Operation[tuple[list[Row], list[Row]]]:
            before = yield count
            write.set()
            yield Statement('SELECT CAST(pg_advisory_lock_shared(1) AS TEXT)')
            after = yield count
            yield Statement('SELECT pg_advisory_unlock_shared(1)')
            return before, after

        await engine.read(operation)  # later runs know that it needs a transaction
        write.clear()
        connection = await connect(engine.url)
        await connection.execute('SELECT pg_advisory_lock(1)')
        read = asyncio.create_task(engine.read(operation))
        await write.wait()
        await store.commit(version())
        await connection.close()
        assert await read == ([(0,)], [(0,)])


async def test_read_operation_cannot_write(engine: PostgresEngine) -> None:
    table = Statement('CREATE TABLE x (i BIGINT)')
    with pytest.raises(StoreUnavailableError, match='read-only transaction'):
        await engine.read(doing(Statement('SELECT 1'), table))


async def test_operation_that_raises_is_rolled_back(engine: PostgresEngine) -> None:
    def operation() -> Operation[None]:
        yield Statement('CREATE TABLE x (i BIGINT)')
        raise LookupError('no')

    with pytest.raises(LookupError, match='no'):
        await engine.write(operation)
    assert await engine.read(doing(Statement("SELECT 1 FROM pg_tables WHERE tablename = 'x'"))) == [[]]


async def test_write_with_a_cancelled_caller_completes(postgres_url: str) -> None:
    engine = await PostgresEngine.open(postgres_url)
    task = asyncio.create_task(engine.write(doing(Statement('CREATE TABLE x (i BIGINT)'))))
    refused = asyncio.create_task(engine.write(doing(Statement('SELECT no'))))
    await asyncio.sleep(0)
    for each in (task, refused):
        each.cancel()
        with pytest.raises(asyncio.CancelledError):
            await each
    await engine.aclose()
    again = await PostgresEngine.open(postgres_url)
    assert await again.read(doing(Statement('SELECT i FROM x'))) == [[]]
    await again.aclose()


async def test_concurrent_commits_of_two_stores_are_all_applied(postgres_url: str) -> None:
    async with open_store(postgres_url) as one, open_store(postgres_url) as other:
        await one.commit(START)
        commits = [version() for _ in range(128)]
        done = await asyncio.gather(*((one, other)[i % 2].commit(each) for i, each in enumerate(commits)))
        numbers = {id: number for each in done for id, number in each.numbers.items()}
        assert {each.id: each.number for each in await one.versions(limit=200)} == numbers
        assert sorted(numbers.values()) == list(range(1, 129))


async def test_reader_that_follows_version_numbers_misses_none(postgres_url: str) -> None:
    async with open_store(postgres_url) as one, open_store(postgres_url) as other:
        await one.commit(START)
        followed: list[Value] = []

        async def follow() -> None:
            last: Value = 0
            while len(followed) < 100:
                highest = (await one.engine.read(doing(Statement('SELECT COALESCE(MAX(number), 0) FROM version'))))[0][
                    0
                ][0]
                await one.engine.wait_for_writes()
                between = 'SELECT number FROM version WHERE number > ?1 AND number <= ?2 ORDER BY number'
                new = await one.engine.read(doing(Statement(between, (last, highest))))
                followed.extend(row[0] for row in new[0])
                last = highest

        writes = [(one, other)[i % 2].commit(version()) for i in range(100)]
        await asyncio.wait_for(asyncio.gather(follow(), *writes), 60)
        assert followed == list(range(1, 101))


async def test_stores_opened_concurrently_create_the_tables_once(postgres_url: str) -> None:
    engines = await asyncio.gather(*(PostgresEngine.open(postgres_url) for _ in range(8)))
    assert len({engine.owner for engine in engines}) == 8
    await asyncio.gather(*(engine.aclose() for engine in engines))


async def test_foreign_postgresql_database_is_refused(postgres_url: str) -> None:
    connection = await connect(postgres_url)
    await connection.execute('CREATE TABLE guests (name TEXT)')
    with pytest.raises(StoreFormatError, match="has a table 'guests'"):
        await PostgresEngine.open(postgres_url)
    await connection.execute('CREATE SCHEMA agents')
    await connection.close()
    engine = await PostgresEngine.open(f'{postgres_url}&search_path=agents')
    assert engine.url == f'{postgres_url}&search_path=agents'
    await engine.aclose()


async def test_closed_engine_raises(postgres_url: str) -> None:
    engine = await PostgresEngine.open(postgres_url)
    await engine.aclose()
    await engine.aclose()
    with pytest.raises(StoreClosedError, match='was closed'):
        await engine.read(doing())


class TestPostgresStore(StoreSuite):
    @pytest.fixture
    async def open_store(self, postgres_url: str) -> AsyncGenerator[OpenStore]:
        async with AsyncExitStack() as stack:

            async def open_one() -> Store:
                return await stack.enter_async_context(open_store(postgres_url))

            yield open_one
