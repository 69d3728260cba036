"""Limits of SQL queries: time, memory and size of the result are bounded, and no process outlives its caller."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from pydantic_deep.errors import ValidationError
from pydantic_deep.store import QueryBusyError, QueryError, QueryTimeoutError, SqlLimits, SqlStore, open_store
from pydantic_deep.store.analytics import Analytics

pytestmark = pytest.mark.anyio

SMALL = SqlLimits(memory_bytes=128 * 2**20)
HOG = 'SELECT count(*) FROM range(10_000_000) a, range(10_000_000) b WHERE a.range + b.range = 3'
"""Hours of work within one operator."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as opened:
        yield opened


def stat_of(pid: int) -> list[str]:
    """Return the state, the parent's id and further fields of a process, or an empty list if it does not exist."""
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def children_of(parent: int) -> list[int]:
    """Return the child processes of a process that have not been reaped."""
    pids = [int(path.name) for path in Path('/proc').iterdir() if path.name.isdigit()]
    return [pid for pid in pids if stat_of(pid)[1:2] == [str(parent)]]


def host_of(store: SqlStore) -> int:
    """Return the id of the process that holds the replica of a store."""
    analytics = store._analytics  # pyright: ignore[reportPrivateUsage] - no public function identifies the process
    assert analytics is not None
    opened = analytics._opened  # pyright: ignore[reportPrivateUsage]
    assert opened is not None
    return opened.replica._connection._process.pid  # pyright: ignore[reportPrivateUsage]


async def until(condition: Callable[[], bool]) -> None:
    """Poll until the condition is true."""
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - other processes set no event
            await anyio.sleep(0.01)


async def test_query_is_stopped_at_its_timeout(store: SqlStore) -> None:
    with pytest.raises(QueryTimeoutError, match=r'0\.2 s.*`limits=SqlLimits\(timeout_seconds=') as caught:
        await store.sql(HOG, limits=SqlLimits(timeout_seconds=0.2))
    assert isinstance(caught.value, TimeoutError)
    await until(lambda: not children_of(host_of(store)))
    assert (await store.sql('SELECT 1')).rows == ((1,),)


@pytest.mark.slow
@pytest.mark.parametrize(
    'query',
    [
        "SELECT repeat('x', 1000000000)",
        "SELECT len(repeat('x', 1000000000))",
        'SELECT range(300000000)',
        'SELECT list(range) FROM range(1000000000)',
        "SELECT string_agg(repeat('x', 1000), ',') FROM range(1000000)",
        'SELECT count(*) FROM (SELECT DISTINCT a.range * 100000 + b.range FROM range(100000) a, range(100000) b)',
        "SELECT [repeat('x', 1000)] FROM range(1000000)",
    ],
)
async def test_query_memory_is_limited(store: SqlStore, query: str) -> None:
    await store.sql('SELECT 1')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        QueryError, match=r'[^.]\. A query may take 128 MiB, its `memory_bytes`|takes more than 1,000,000 bytes'
    ):
        await store.sql(query, limits=SqlLimits(memory_bytes=128 * 2**20, max_bytes=1_000_000))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 2**10
    assert (await store.sql('SELECT 1')).rows == ((1,),)


@pytest.mark.slow
@pytest.mark.parametrize(
    'query',
    [
        "SELECT repeat('x', 100000) FROM range(100)",
        'SELECT range(100) FROM range(10000)',
        "SELECT {'a': map {1: [range]}} FROM range(100000)",
        'SELECT range FROM range(1000000)',
        'SELECT repeat(chr(1), 500000)',
    ],
)
async def test_result_size_is_limited(store: SqlStore, query: str) -> None:
    with pytest.raises(QueryError, match=r'The result takes more than 1,000,000 bytes\. Aggregate'):
        await store.sql(query, limits=SqlLimits(max_bytes=1_000_000))


async def test_max_rows_truncates_the_result(store: SqlStore) -> None:
    table = await store.sql('FROM range(1_000_000_000_000) t(i)', max_rows=3000)
    assert (len(table), table.rows[-1], table.is_truncated) == (3000, (2999,), True)
    table = await store.sql('FROM range(3000)', max_rows=3000)
    assert (len(table), table.is_truncated) == (3000, False)
    with pytest.raises(ValidationError, match='max_rows: it is -1'):
        await store.sql('SELECT 1', max_rows=-1)


async def test_text_as_parameters_is_refused_because_its_characters_would_be_bound(store: SqlStore) -> None:
    with pytest.raises(ValidationError, match=r"^parameters: it is a text\. Pass it in a list: \['a'\]\.$"):
        await store.sql('SELECT ?', 'a')


async def test_query_that_is_no_text_is_refused(store: SqlStore) -> None:
    with pytest.raises(ValidationError, match=r'^query: it is of type `int`, and must be of type `str`'):
        await store.sql(5)  # type: ignore[arg-type]


@pytest.mark.slow
async def test_third_concurrent_query_waits_or_is_refused(store: SqlStore) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(store.sql, HOG)
        await until(lambda: store._analytics is not None and store._analytics._opened is not None)  # pyright: ignore[reportPrivateUsage]
        await until(lambda: len(children_of(host_of(store))) == 2)
        with pytest.raises(QueryBusyError, match=r'2 queries have been running for 0\.01 s'):
            await store.sql('SELECT 1', limits=SqlLimits(wait_seconds=0.01))
        assert (await store.sql('SELECT 1', limits=SqlLimits(at_once=3))).rows == ((1,),)
        tasks.cancel_scope.cancel()
    await until(lambda: not children_of(host_of(store)))
    assert (await store.sql('SELECT 1')).rows == ((1,),)


async def test_closing_a_store_during_a_query_ends_all_processes(store: SqlStore) -> None:
    task = asyncio.create_task(store.sql(HOG))
    await until(lambda: store._analytics is not None and store._analytics._opened is not None)  # pyright: ignore[reportPrivateUsage]
    host = host_of(store)
    await until(lambda: bool(children_of(host)))
    [query] = children_of(host)
    await store.aclose()
    assert not stat_of(host)
    assert not stat_of(query)
    with pytest.raises(Exception, match='closed'):
        await task


ASKING = f"""
import asyncio, sys
from pydantic_deep.store import open_store
async def main():
    async with open_store(sys.argv[1]) as store:
        await store.sql({HOG!r})
asyncio.run(main())
"""


@pytest.mark.slow
async def test_killing_a_process_ends_its_query_processes(tmp_path: Path) -> None:
    """The `__main__` of the process is not an importable file either."""
    process = await anyio.open_process([sys.executable, '-c', ASKING, f'sqlite:///{tmp_path}/a.db'])
    try:
        await until(lambda: bool(children_of(process.pid)))
        [host] = children_of(process.pid)
        await until(lambda: bool(children_of(host)))
        [query] = children_of(host)
    finally:
        process.kill()
        await process.aclose()
    await until(lambda: {*stat_of(host)[:1], *stat_of(query)[:1]} <= {'Z'})  # orphans may stay zombies


async def test_query_process_inherits_no_secrets_or_descriptors(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('TZ', 'UTC')
    await store.sql('SELECT 1')
    host = host_of(store)
    assert Path(f'/proc/{host}/environ').read_bytes() in (b'TZ=UTC\0', b'LD_LIBRARY_PATH=\0TZ=UTC\0')
    targets = sorted(str(path.readlink()).partition(':')[0] for path in Path(f'/proc/{host}/fd').iterdir())
    assert targets == ['/dev/null', '/dev/null', '/dev/null', 'socket']
    assert os.getsid(host) == host


async def test_store_can_be_queried_from_several_event_loops(store: SqlStore) -> None:
    def ask() -> object:
        return asyncio.run(store.sql('SELECT 1')).rows

    async def note() -> None:
        answers.append(await to_thread.run_sync(ask))

    answers: list[object] = []
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(note)
    assert answers == [((1,),)] * 5


@pytest.mark.slow
async def test_replica_file_can_be_read_during_a_write(store: SqlStore, tmp_path: Path) -> None:
    """A query sees the replica as of its start, and the log is merged into the file when no query reads it."""
    async with Analytics(store, tmp_path / 'replica.duckdb') as analytics:
        await analytics.sql('SELECT 1')
        with anyio.move_on_after(0.2):
            await analytics.sql(HOG)
        assert (await analytics.sql('SELECT count(*) FROM runs')).rows == ((0,),)
        with pytest.raises(QueryError, match='128 MiB'):
            await analytics.sql("SELECT * FROM range(10000000) t(i) ORDER BY i || 'x'", limits=SMALL)
    assert sorted(path.name for path in tmp_path.glob('replica*')) == ['replica.duckdb', 'replica.duckdb.lock']


@pytest.mark.parametrize(
    ('field', 'value'),
    [
        ('timeout_seconds', 0),
        ('timeout_seconds', float('nan')),
        ('timeout_seconds', float('inf')),
        ('timeout_seconds', '1'),
        ('memory_bytes', 2**20),
        ('memory_bytes', 2.0**30),
        ('max_bytes', -1),
        ('at_once', 0),
        ('at_once', True),
        ('wait_seconds', -1),
    ],
)
def test_invalid_limit_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        SqlLimits(**{field: value})  # pyright: ignore[reportArgumentType]
    assert caught.value.field == field


async def test_very_large_limits_are_accepted(store: SqlStore) -> None:
    limits = SqlLimits(timeout_seconds=1e300, memory_bytes=10**30, max_bytes=10**15)
    assert (await store.sql('SELECT 1', limits=limits)).rows == ((1,),)


@pytest.mark.slow
def test_query_process_starts_without_an_importable_main_module(tmp_path: Path) -> None:
    program = (
        'import asyncio, json\n'
        'from pydantic_deep.store import open_store\n'
        'async def main():\n'
        '    async with open_store("memory:") as store:\n'
        '        print(json.dumps((await store.sql("SELECT 1")).rows))\n'
        'asyncio.run(main())\n'
    )
    done = subprocess.run([sys.executable, '-'], input=program.encode(), capture_output=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout) == [[1]]
