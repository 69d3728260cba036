"""Operations that SQL queries are not allowed to do: each raises an error of the store and changes nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import pytest

from pydantic_deep.store import ConversationRecord, SqlLimits, SqlStore, open_store
from pydantic_deep.store.analytics import _replica
from pydantic_deep.store.analytics._replica import Query
from pydantic_deep.store.errors import QueryError, StoreError
from pydantic_deep.store.records import Commit

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ENDLESS = 'WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n'


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqlStore]:
    monkeypatch.chdir(tmp_path)
    async with open_store('memory:') as opened:
        await opened.commit(Commit(conversations=[ConversationRecord('c', 'analyst', None, 1)]))
        await opened.sql('SELECT 1')
        (tmp_path / 'secret.csv').write_text('secret\n1\n')
        yield opened


WRITES = (
    "INSERT INTO conversations (id) VALUES ('x')",
    "UPDATE conversations SET id = 'x'",
    'DELETE FROM conversations',
    'TRUNCATE conversations',
    'DROP TABLE conversations',
    'ALTER TABLE conversations ADD COLUMN x INT',
    'CREATE TABLE x (i INT)',
    'CREATE TEMP TABLE x AS SELECT 1',
    'CREATE VIEW x AS SELECT 1',
    'CREATE OR REPLACE MACRO failure_rates() AS TABLE SELECT 1',
    'MERGE INTO conversations USING runs ON (true) WHEN MATCHED THEN DELETE',
    'DROP SCHEMA internal CASCADE',
    "WITH x AS (INSERT INTO conversations (id) VALUES ('x') RETURNING *) FROM x",
    'WITH x AS (DELETE FROM conversations RETURNING *) FROM x',
    "WITH x AS (UPDATE conversations SET id = 'x' RETURNING *) FROM x",
    "FROM query('DROP TABLE conversations')",
    'EXPLAIN ANALYZE DELETE FROM conversations',
    'EXPLAIN ANALYZE COMMIT',
    'SELECT 1; DROP TABLE conversations',
    'COMMIT; DELETE FROM conversations',
    'BEGIN',
    'COMMIT',
    'ROLLBACK',
    'PREPARE x AS DELETE FROM conversations',
    'EXECUTE x',
    'CHECKPOINT',
    'FROM force_checkpoint()',
    'VACUUM',
    'PIVOT conversations ON agent_name',
)

OUTSIDE = (
    "FROM read_text('/etc/passwd')",
    "FROM read_blob('secret.csv')",
    "FROM read_csv('secret.csv')",
    "FROM read_json('secret.csv')",
    "FROM read_parquet('secret.csv')",
    "FROM read_duckdb('secret.csv')",
    "FROM sniff_csv('secret.csv')",
    "FROM parquet_metadata('secret.csv')",
    "FROM 'secret.csv'",
    "FROM query_table('secret.csv')",
    "FROM glob('*')",
    "FROM read_text('file:///etc/passwd')",
    "FROM read_csv('http://127.0.0.1:1/x.csv')",
    "FROM 'https://127.0.0.1:1/x.parquet'",
    "SELECT getenv('HOME')",
    'FROM duckdb_extensions()',
    "COPY conversations TO 'stolen.csv'",
    "COPY conversations FROM 'secret.csv'",
    "WITH x AS (COPY conversations TO 'stolen.csv') FROM x",
    "EXPLAIN ANALYZE COPY conversations TO 'stolen.csv'",
    "EXPORT DATABASE 'stolen'",
    "IMPORT DATABASE 'stolen'",
    "ATTACH 'stolen.duckdb'",
    "ATTACH ':memory:' AS other",
    'DETACH memory',
    'INSTALL httpfs',
    'LOAD json',
    "LOAD './secret.csv'",
    'FROM pandas_scan(1::POINTER)',
    'FROM secret',
    "FROM sqlite_scan('agents.db', 'version')",
    'CREATE SECRET x (TYPE s3)',
)

SETTINGS = (
    'SET enable_external_access = true',
    'SET lock_configuration = false',
    "SET memory_limit = '100GB'",
    'SET threads = 64',
    'SET python_enable_replacements = true',
    'RESET threads',
    'SET VARIABLE x = 1',
    'EXPLAIN ANALYZE SET VARIABLE x = 1',
    'PRAGMA enable_profiling',
    "PRAGMA profiling_output = 'stolen.txt'",
    'PRAGMA database_list',
    'USE internal',
    'CALL pragma_version()',
    "CALL enable_logging(storage := 'file', storage_path := 'stolen')",
    "FROM enable_logging(storage = 'file', storage_config = {'path': 'stolen'})",
    'FROM enable_profiling()',
)

MISTAKES = ('', '-- nothing', 'SELEC 1', 'SELECT 1; SELECT 2', 'FROM nowhere', 'SELECT $missing', "SELECT error('x')")

STATE = (
    'FROM conversations',
    'SELECT schema_name, table_name, column_count FROM duckdb_tables() ORDER BY ALL',
    'SELECT function_name, macro_definition FROM duckdb_functions() WHERE NOT internal ORDER BY ALL',
    'SELECT database_name, path FROM duckdb_databases() ORDER BY ALL',
    'SELECT name, value FROM duckdb_settings() ORDER BY ALL',
    'FROM duckdb_variables()',
)
"""All state that a query could change."""


@pytest.mark.parametrize('queries', [WRITES, OUTSIDE, SETTINGS, MISTAKES], ids=['write', 'outside', 'set', 'mistake'])
async def test_query_that_does_more_than_read_is_refused(
    store: SqlStore, tmp_path: Path, queries: Sequence[str]
) -> None:
    before = [(await store.sql(each)).rows for each in STATE]
    for query in queries:
        with pytest.raises(QueryError) as caught:
            await store.sql(query)
        assert isinstance(caught.value, StoreError)
        assert str(caught.value)
        assert list(tmp_path.iterdir()) == [tmp_path / 'secret.csv'], query
    assert [(await store.sql(each)).rows for each in STATE] == before


async def test_settings_are_locked(store: SqlStore) -> None:
    names = "'enable_external_access', 'lock_configuration', 'python_enable_replacements', 'autoload_known_extensions'"
    rows = await store.sql(f'SELECT name, value FROM duckdb_settings() WHERE name IN ({names}) ORDER BY name')
    assert rows.rows == (
        ('autoload_known_extensions', 'false'),
        ('enable_external_access', 'false'),
        ('lock_configuration', 'true'),
        ('python_enable_replacements', 'false'),
    )


READS = ('DESCRIBE runs', 'SHOW TABLES', 'SUMMARIZE runs', 'VALUES (1)', 'TABLE runs', 'WITH a AS (SELECT 1) FROM a')


async def test_every_read_only_statement_is_answered(store: SqlStore) -> None:
    for query in READS:
        assert (await store.sql(query)).columns, query


async def test_visible_tables_are_the_documented_ones(store: SqlStore) -> None:
    from pydantic_deep.store.analytics._schema import PUBLIC

    assert [name for (name,) in await store.sql('SHOW TABLES')] == sorted(PUBLIC)


async def test_query_out_of_memory_does_not_affect_others(store: SqlStore) -> None:
    query = "SELECT count(DISTINCT i::VARCHAR || repeat('x', 400)) FROM range(1_000_000) t(i)"
    with pytest.raises(QueryError, match='Out of Memory'):
        await store.sql(query, limits=SqlLimits(memory_bytes=64 * 2**20))
    assert (await store.sql('SELECT count(*) FROM conversations')).rows == ((1,),)


async def test_number_of_result_rows_is_limited(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_replica, 'MAX_ROWS', 5000)
    assert len(await store.sql('FROM range(5000)')) == 5000
    with pytest.raises(QueryError, match='more than 5,000 rows'):
        await store.sql('FROM range(1_000_000_000_000)')


async def test_invalid_parameter_raises(store: SqlStore) -> None:
    with pytest.raises(QueryError):
        await store.sql('SELECT ?', [object()])


async def test_cancelled_query_is_interrupted(store: SqlStore) -> None:
    with anyio.move_on_after(0.05) as scope:
        await store.sql(ENDLESS)
    assert scope.cancelled_caught
    assert (await store.sql('SELECT count(*) FROM duckdb_connection_count()')).rows == ((1,),)
    task = asyncio.create_task(store.sql(ENDLESS))
    await anyio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await store.sql('SELECT count(*) FROM conversations')).rows == ((1,),)


async def test_other_tasks_run_during_a_query(store: SqlStore) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.sql, ENDLESS)
        assert (await store.sql('SELECT count(*) FROM conversations')).rows == ((1,),)
        await store.commit(Commit(conversations=[ConversationRecord('d', 'analyst', None, 1)]))
        assert (await store.sql('SELECT count(*) FROM conversations')).rows == ((2,),)
        tasks.cancel_scope.cancel()


async def test_queries_do_not_run_in_the_event_loop_thread(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    run = Query.run

    def noted(query: Query, *args: object) -> object:
        threads.add(threading.get_ident())
        return run(query, *args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Query, 'run', noted)
    await store.sql('SELECT 1')
    assert threads
    assert threading.get_ident() not in threads
