"""`PostgresDispatcher` on a real server that is stopped and started."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import asyncpg
import pytest

from pydantic_deep.dispatch import postgres
from pydantic_deep.dispatch._open import open_dispatcher
from pydantic_deep.dispatch._protocol import Dispatcher
from pydantic_deep.dispatch.conformance import DispatcherSuite, EngineSwitch, FakeExecution, OpenDispatcher
from pydantic_deep.dispatch.errors import DispatcherUnavailableError
from pydantic_deep.dispatch.postgres import PostgresDispatcher, _queue_schema  # pyright: ignore[reportPrivateUsage]
from pydantic_deep.store import open_store
from tests.store.conftest import Ask, running_postgres

pytestmark = pytest.mark.anyio


@pytest.fixture(scope='module')
def ask() -> Generator[Ask]:
    """A server that syncs to disk, so that it may be stopped."""
    with running_postgres() as ask:
        yield ask


@pytest.fixture
def url(ask: Ask) -> str:
    return ask('database')


class _Server:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def stop(self) -> None:
        await asyncio.to_thread(self._ask, 'stop')

    async def start(self) -> None:
        await asyncio.to_thread(self._ask, 'start')


class TestPostgresDispatcher(DispatcherSuite):
    @pytest.fixture
    async def open_dispatcher(self, url: str) -> AsyncGenerator[OpenDispatcher]:
        async with AsyncExitStack() as stack:

            async def open_one() -> Dispatcher:
                dispatcher = await PostgresDispatcher.open(url, heartbeat_seconds=3)
                stack.push_async_callback(dispatcher.aclose)
                return dispatcher

            yield open_one

    @pytest.fixture
    def switch(self, ask: Ask) -> EngineSwitch:
        return _Server(ask)

    @pytest.mark.slow
    async def test_engine_that_is_down_is_reported_and_waited_for(
        self, dispatcher: Dispatcher, switch: EngineSwitch | None
    ) -> None:
        await super().test_engine_that_is_down_is_reported_and_waited_for(dispatcher, switch)


@pytest.fixture
async def dispatcher(url: str) -> AsyncGenerator[PostgresDispatcher]:
    opened = await PostgresDispatcher.open(url, heartbeat_seconds=3)
    yield opened
    await opened.aclose()


@asynccontextmanager
async def working(dispatcher: Dispatcher, execution: FakeExecution) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:

        async def work() -> None:
            await dispatcher.work(execution, agent_names=['analyst'], concurrency=2)

        group.start_soon(work)
        yield
        group.cancel_scope.cancel()


async def submit(dispatcher: Dispatcher, run_id: str) -> None:
    await dispatcher.submit(run_id, agent_name='analyst', conversation_id='c')


async def query(url: str, statement: str) -> Any:
    connection = await cast('Any', asyncpg).connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


@pytest.mark.parametrize('queue_is_first', [True, False])
async def test_queue_and_store_share_a_database(url: str, queue_is_first: bool) -> None:
    async with AsyncExitStack() as stack:
        openers = [open_dispatcher(url), open_store(url)]
        for opener in openers if queue_is_first else reversed(openers):
            await stack.enter_async_context(opener)
    async with open_store(url, read_only=True), open_dispatcher(url) as dispatcher:
        assert (await dispatcher.health()).is_up


async def test_stores_of_one_database_have_separate_queues(url: str) -> None:
    """A store is in a schema, and a queue is in a schema beside it."""
    await query(url, 'CREATE SCHEMA "Second-Store"')
    async with (
        open_dispatcher(f'{url}&search_path=%22Second-Store%22') as second,
        open_dispatcher(url) as first,
    ):
        await submit(first, 'first')
        await submit(second, 'second')
        execution = FakeExecution()
        async with working(second, execution):
            await execution.wait_until(lambda: execution.ended == ['second'])
    assert await query(url, 'SELECT dedupe_key FROM pgqueuer_public.pgqueuer') == 'first'
    assert await query(url, 'SELECT count(*) FROM pgqueuer_second_store_0b3a85f8be8129ff.pgqueuer') == 0


@pytest.mark.parametrize(
    ('schema', 'queue'),
    [
        ('public', 'pgqueuer_public'),
        ('a' * 54, f'pgqueuer_{"a" * 54}'),
        ('Team-A', 'pgqueuer_team_a_5ee609b6f01fa9be'),
    ],
)
def test_queue_has_a_plain_name_of_its_own(schema: str, queue: str) -> None:
    assert _queue_schema(schema) == queue
    others = ['team-a', 'team_a', 'TEAM-A', 'é' * 31, 'a' * 55, 'a' * 63]
    names = {_queue_schema(other) for other in [schema, *others]}
    assert len(names) == len(others) + 1
    assert max(map(len, names)) <= 63
    assert all(re.fullmatch('[a-z0-9_]+', name) for name in names)


async def test_processes_that_start_at_the_same_time_create_the_tables_once(url: str) -> None:
    dispatchers = await asyncio.gather(*(PostgresDispatcher.open(url) for _ in range(4)))
    for number, dispatcher in enumerate(dispatchers):
        await submit(dispatcher, str(number))
        await dispatcher.aclose()
    assert await query(url, 'SELECT count(*) FROM pgqueuer_public.pgqueuer') == 4


async def test_environment_does_not_change_the_tables(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constructor of the library's settings reads variables as common as `CHANNEL` and `FUNCTION`."""
    for name in ('PGQUEUER_PREFIX', 'PGQUEUER_SCHEMA', 'CHANNEL', 'FUNCTION', 'TRIGGER', 'DURABILITY', 'QUEUE_TABLE'):
        monkeypatch.setenv(name, 'other')
    async with open_dispatcher(url) as dispatcher:
        await submit(dispatcher, 'a')
    assert await query(url, 'SELECT dedupe_key FROM pgqueuer_public.pgqueuer') == 'a'


async def test_executed_runs_leave_no_rows_that_pile_up(url: str, dispatcher: PostgresDispatcher) -> None:
    """The library logs three rows a run, for its statistics. They are deleted after a day, when a worker starts."""
    execution = FakeExecution()
    async with working(dispatcher, execution):
        for number in range(3):
            await submit(dispatcher, str(number))
        await execution.wait_until(lambda: len(execution.ended) == 3)
    assert await query(url, 'SELECT count(*) FROM pgqueuer_public.pgqueuer') == 0
    assert await query(url, 'SELECT count(*) FROM pgqueuer_public.pgqueuer_log') == 9
    await query(url, "UPDATE pgqueuer_public.pgqueuer_log SET created = created - interval '25 hours' WHERE id <= 8")
    async with working(dispatcher, execution):
        await submit(dispatcher, '3')
        await execution.wait_until(lambda: len(execution.ended) == 4)
    assert await query(url, 'SELECT count(*) FROM pgqueuer_public.pgqueuer_log WHERE id <= 9') == 1


async def test_worker_that_lost_its_notifications_listens_again(url: str, dispatcher: PostgresDispatcher) -> None:
    execution = FakeExecution(finished=False)
    async with working(dispatcher, execution):
        await submit(dispatcher, 'a')
        await execution.wait_until(lambda: execution.running == {'a'})
        await query(
            url,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' "
            'AND datname = current_database()',
        )
        await submit(dispatcher, 'b')
        await execution.wait_until(lambda: execution.running == {'a', 'b'})


async def test_outage_is_logged_once_and_so_is_its_end(
    dispatcher: PostgresDispatcher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres, '_RECONNECT_SECONDS', 0)
    connect, attempts = postgres._connect, list[str]()  # pyright: ignore[reportPrivateUsage]

    async def refuse_at_first(url: str) -> Any:
        attempts.append(url)
        if len(attempts) < 5:
            raise ConnectionRefusedError('No connection')
        return await connect(url)

    monkeypatch.setattr(postgres, '_connect', refuse_at_first)
    await submit(dispatcher, 'a')
    execution = FakeExecution()
    async with working(dispatcher, execution):
        await execution.wait_until(lambda: execution.ended == ['a'])
    assert caplog.messages == ['The worker waits for its queue: No connection.', 'The worker has its queue again.']


async def test_run_whose_heartbeat_was_late_is_not_taken_again_by_its_own_worker(
    url: str, dispatcher: PostgresDispatcher
) -> None:
    execution = FakeExecution(finished=False)
    async with working(dispatcher, execution):
        await submit(dispatcher, 'a')
        await execution.wait_until(lambda: execution.running == {'a'})
        await query(url, "UPDATE pgqueuer_public.pgqueuer SET heartbeat = heartbeat - interval '1 hour'")
        await submit(dispatcher, 'b')
        await execution.wait_until(lambda: execution.running == {'a', 'b'})
        execution.finish()
        await execution.wait_until(lambda: len(execution.ended) == 2)
    assert execution.started == ['a', 'b']


@pytest.mark.slow
async def test_run_that_ends_while_the_queue_is_unavailable_is_delivered_once_more(
    url: str, dispatcher: PostgresDispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    execution = FakeExecution(finished=False)
    async with working(dispatcher, execution):
        await submit(dispatcher, 'a')
        await execution.wait_until(lambda: execution.running == {'a'})
        await query(url, 'ALTER TABLE pgqueuer_public.pgqueuer RENAME TO hidden')
        execution.finish()
        with anyio.fail_after(60):
            while 'delivered once more' not in caplog.text:  # noqa: ASYNC110 - nothing reports a log entry
                await anyio.sleep(0.05)
        await query(url, 'ALTER TABLE pgqueuer_public.hidden RENAME TO pgqueuer')
        await execution.wait_until(lambda: execution.ended == ['a', 'a'])


CRASHING = """
import asyncio, sys
from pydantic_deep.dispatch.postgres import PostgresDispatcher

async def main():
    dispatcher = await PostgresDispatcher.open(sys.argv[1], heartbeat_seconds=3)
    async def execute(run_id):
        print(run_id, flush=True)
        await asyncio.sleep(600)
    await dispatcher.work(execute, agent_names=['analyst'], concurrency=1)

asyncio.run(main())
"""


@pytest.mark.slow
async def test_run_of_a_crashed_worker_is_delivered_to_another(url: str, dispatcher: PostgresDispatcher) -> None:
    await submit(dispatcher, 'a')
    crashed = await asyncio.create_subprocess_exec(
        sys.executable, '-c', CRASHING, url, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert crashed.stdout is not None
    assert await crashed.stdout.readline() == b'a\n'
    crashed.send_signal(signal.SIGKILL)
    await crashed.wait()
    execution = FakeExecution()
    async with working(dispatcher, execution):
        await execution.wait_until(lambda: execution.ended == ['a'])


async def test_password_is_not_shown(url: str) -> None:
    host = url.partition('?host=')[2]
    secret = 'secret/#?@'
    await query(url, 'GRANT CREATE ON DATABASE ' + url.partition('@/')[2].partition('?')[0] + ' TO locked')
    encoded = url.replace('postgres@', 'locked:secret%2F%23%3F%40@')
    async with open_dispatcher(encoded) as dispatcher:
        health = await dispatcher.health()
    assert (health.is_up, 'secret' in health.detail) == (True, False)
    with pytest.raises(DispatcherUnavailableError, match='password authentication failed') as caught:
        await PostgresDispatcher.open(encoded.replace('secret', 'wrong-password'))
    assert 'wrong-password' not in str(caught.value)
    with pytest.raises(ValueError, match='Percent-encode') as refused:
        await PostgresDispatcher.open(f'postgresql://locked:{secret}@/test?host={host}')
    assert 'secret' not in str(refused.value)


@pytest.mark.slow
async def test_server_that_cannot_be_reached_is_reported() -> None:
    with pytest.raises(DispatcherUnavailableError, match=r'The queue in PostgreSQL at localhost:1/agents is unavail'):
        async with open_dispatcher('postgresql://me@localhost:1/agents'):
            pass
