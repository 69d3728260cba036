"""Runs as tasks of the server: readers, renderings and disconnects do not affect them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import anyio
import pytest
from pydantic_ai import AgentRunResultEvent

from pydantic_deep import Approve, create_deep_agent
from pydantic_deep.server import ServerSettings
from pydantic_deep.server._metrics import ServerMetrics
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.runs._log_cache import MAX_FILES, LogCache
from pydantic_deep.server.runs._log_entries import decode_entry
from pydantic_deep.server.runs._pool import RunPool
from pydantic_deep.server.runs._run_log import RunLog
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.store import Commit, Committed, SqlStore, StoreUnavailableError
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.streaming import StreamEvent
from pydantic_deep.testing import FakeClock, ScriptedModel, Step, call
from pydantic_deep.versions import AgentVersion, ApprovalsPendingError, TurnOptions, VersionedAgent
from tests.server.conftest import Gate

pytestmark = pytest.mark.anyio

Version = AgentVersion[Any, Any]


@pytest.fixture
async def pool() -> AsyncGenerator[RunPool]:
    async with RunPool(ServerSettings(), metrics=ServerMetrics()) as pool:
        yield pool


async def root_of(store: SqlStore, *steps: Step, **options: Any) -> Version:
    return await VersionedAgent(create_deep_agent(ScriptedModel(*steps), **options), store).create()


async def events_of(run: ServerRun) -> list[StreamEvent]:
    return [decode_entry(entry) async for _, entry in run.log.tail()]


def types(events: list[StreamEvent]) -> list[str]:
    return [event.type for event in events]


async def test_run_completes_without_readers(pool: RunPool, store: SqlStore):
    """004-12: SSE streaming with tool calls, auditing, multi-model schemes, as one experience."""
    root = await root_of(store, 'Hello.')

    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada')

    assert (run.state, pool.get(run.id), pool.running_count) == ('running', run, 1)
    await run.wait()
    assert (run.state, run.output, pool.running_count, pool.get(run.id)) == ('complete', 'Hello.', 0, run)
    stored = await store.run(run.id)
    assert stored is not None
    assert (stored.state, stored.base_id) == ('complete', root.id)
    assert types(await events_of(run)) == ['start', 'text', 'usage', 'end']
    assert run.log.is_closed
    conversation = await store.conversation(root.conversation_id)
    assert conversation is not None
    assert conversation.head_id == run.version_id


async def test_wait_begun_returns_when_the_run_is_stored(pool: RunPool, store: SqlStore, gate: Gate):
    root = await root_of(store, call('hold'), 'Done.', tools=[gate.hold])
    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada')

    await run.begun.wait()

    assert [each.id for each in await store.runs(states=['running'])] == [run.id]
    gate.opened.set()
    await run.wait()


async def test_invalid_turn_is_reported_in_the_log(pool: RunPool, store: SqlStore):
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Hello.')), store)
    root = await agent.create(model='nobody:knows')

    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada')
    await run.wait()
    await run.begun.wait()

    assert (run.state, run.version_id) == ('failed', None)
    assert types(await events_of(run)) == ['start', 'error', 'end']
    assert run.error is not None
    assert 'nobody' in run.error.message


async def test_pending_version_accepts_answers_and_refuses_a_prompt(pool: RunPool, store: SqlStore):
    root = await root_of(store, call('ls', path='/'), 'Done.', interrupt_on={'ls': True})
    first = pool.start(root, TurnOptions(prompt='list', moves_head=True), owner='ada')
    await first.wait()
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Done.'), interrupt_on={'ls': True}), store)
    pause = await agent.load(first.version_id or '')

    with pytest.raises(ApprovalsPendingError):
        pool.start(pause, TurnOptions(prompt='more', moves_head=True), owner='ada')
    second = pool.start(
        pause,
        TurnOptions(answers={pause.pending[0].id: Approve()}, by='ada', reason='Fine.', moves_head=True),
        owner='ada',
    )
    await second.wait()

    assert (first.state, second.state, second.output) == ('awaiting_approval', 'complete', 'Done.')
    [approval] = await store.approvals(status=None, version_id=pause.id)
    assert (approval.decided_by, approval.reason) == ('ada', 'Fine.')


async def test_version_accepts_one_run_at_a_time(pool: RunPool, store: SqlStore, gate: Gate):
    root = await root_of(store, call('hold'), 'Done.', tools=[gate.hold])
    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada')

    with pytest.raises(ServerError) as caught:
        pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='bob')

    assert caught.value.facts == {'run_id': run.id}
    assert (pool.run_from(root.id), pool.runs_in(root.conversation_id)) == (run, [run])
    gate.opened.set()
    await run.wait()
    assert (pool.run_from(root.id), pool.runs_of('ada'), pool.runs_of('bob')) == (None, [run], [])


async def test_runs_are_limited_per_key_and_in_total(store: SqlStore, gate: Gate):
    model = ScriptedModel(*[call('hold')] * 3)
    agent = VersionedAgent(create_deep_agent(model, tools=[gate.hold]), store)
    roots = [await agent.create() for _ in range(4)]
    settings = ServerSettings(max_runs=3, max_runs_per_key=2, shutdown_seconds=0)
    async with RunPool(settings) as pool:
        for root in roots[:2]:
            pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada', key_id='one')
        with pytest.raises(ServerError, match='2 runs of this key'):
            pool.start(roots[2], TurnOptions(prompt='hi', moves_head=True), owner='ada', key_id='one')
        pool.start(roots[2], TurnOptions(prompt='hi', moves_head=True), owner='ada')
        with pytest.raises(ServerError, match='3 runs of this server'):
            pool.start(roots[3], TurnOptions(prompt='hi', moves_head=True), owner='bob', key_id='two')


async def test_closed_pool_refuses_runs(pool: RunPool, store: SqlStore):
    root = await root_of(store, 'Hello.')
    pool.close()

    with pytest.raises(ServerError, match='is stopping'):
        pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada')
    assert pool.is_closed


async def test_unopened_pool_has_no_task_group():
    with pytest.raises(RuntimeError, match='async with'):
        _ = RunPool(ServerSettings()).tasks


async def test_run_is_stored_as_interrupted_at_the_shutdown_timeout(store: SqlStore, gate: Gate):
    root = await root_of(store, call('hold'), 'Done.', tools=[gate.hold])
    async with RunPool(ServerSettings(shutdown_seconds=0), metrics=ServerMetrics()) as pool:
        run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada')
        await gate.reached.wait()

    assert (run.state, run.outcome) == ('interrupted', 'interrupted')
    assert (await store.version(run.version_id or '')).state == 'interrupted'


async def test_cancelled_pool_interrupts_its_runs(store: SqlStore, gate: Gate):
    root = await root_of(store, call('hold'), 'Done.', tools=[gate.hold])
    runs: list[ServerRun] = []
    with anyio.CancelScope() as scope:
        async with RunPool(ServerSettings()) as pool:
            runs.append(pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada'))
            await gate.reached.wait()
            scope.cancel()
            await anyio.lowlevel.checkpoint()

    stored = await store.run(runs[0].id)
    assert stored is not None
    assert (stored.state, runs[0].state) == ('interrupted', 'interrupted')


async def names_of(events: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """Render events as the names of their types."""
    async for event in events:
        yield type(event).__name__.encode()
    yield b'end'


async def test_run_has_additional_renderings(pool: RunPool, store: SqlStore):
    root = await root_of(store, 'Hello there.')

    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada', renderings={'names': names_of})
    chunks = [chunk async for _, chunk in run.renderings['names'].tail()]

    assert chunks[-2:] == [AgentRunResultEvent.__name__.encode(), b'end']
    assert b'PartDeltaEvent' in chunks


async def test_failed_or_hanging_rendering_does_not_affect_the_run(
    pool: RunPool, store: SqlStore, caplog: pytest.LogCaptureFixture
):
    async def failing(events: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        yield b'first'
        raise RuntimeError('a bug')

    async def hanging(events: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        yield b'first'
        await anyio.sleep_forever()

    root = await root_of(store, call('ls', path='/'), 'Hello.')
    renderings = {'failing': failing, 'hanging': hanging, 'names': names_of}

    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada', renderings=renderings)
    await run.wait()

    assert (run.state, run.output) == ('complete', 'Hello.')
    assert [chunk async for _, chunk in run.renderings['failing'].tail()] == [b'first']
    assert not run.renderings['hanging'].is_closed
    assert [chunk async for _, chunk in run.renderings['names'].tail()][-1] == b'end'
    assert [record.getMessage() for record in caplog.records] == [f"The rendering 'failing' of the run {run.id} failed"]


async def test_rendering_receives_the_error_of_a_failed_run(
    pool: RunPool, store: SqlStore, caplog: pytest.LogCaptureFixture
):
    async def careful(events: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        try:
            async for _ in events:
                yield b'event'
        except RuntimeError as error:
            yield str(error).encode()

    root = await root_of(store, RuntimeError('no connection'))

    run = pool.start(
        root, TurnOptions(prompt='hi', moves_head=True), owner='ada', renderings={'careful': careful, 'names': names_of}
    )
    chunks = [chunk async for _, chunk in run.renderings['careful'].tail()]

    assert chunks[-1] == b'no connection'
    assert b'end' not in [chunk async for _, chunk in run.renderings['names'].tail()]
    assert [record.getMessage() for record in caplog.records] == [f'The run {run.id} failed']


async def test_unavailable_store_fails_the_run(pool: RunPool):
    class Leaving(SqlStore):
        async def commit(self, commit: Commit) -> Committed:
            if commit.runs:
                raise StoreUnavailableError('The disk is full.')
            return await super().commit(commit)

    async with Leaving(MemoryEngine.open()) as store:
        run = pool.start(await root_of(store, 'Hello.'), TurnOptions(prompt='hi', moves_head=True), owner='ada')
        await run.begun.wait()

    assert run.state == 'failed'
    assert run.error is not None
    assert 'The disk is full.' in run.error.message


async def test_ended_runs_are_counted_in_metrics(store: SqlStore):
    metrics = ServerMetrics()
    async with RunPool(ServerSettings(), metrics=metrics) as pool:
        await pool.start(await root_of(store, 'Hello.'), TurnOptions(prompt='hi', moves_head=True), owner='ada').wait()

        text = metrics.render().decode()
        assert 'pydantic_deep_runs_total{agent="deep-agent",state="complete"} 1.0' in text
        assert 'kind="output"} 10.0' in text
        assert pool.log_bytes == pool.log_memory_bytes > 0
        pool.clear_logs()
        assert pool.log_bytes == 0


def make_cache(clock: FakeClock, **limits: Any) -> LogCache[str]:
    options: Mapping[str, Any] = {'retention_seconds': 60, 'max_bytes': 1000, **limits}
    return LogCache(clock=clock.monotonic, **options)


def log_of(size: int, **options: Any) -> RunLog:
    log = RunLog(**options)
    log.append(b'x' * (size - 8))
    log.close()
    return log


async def test_logs_are_cached_until_their_retention_ends():
    clock = FakeClock()
    cache = make_cache(clock)
    log = log_of(10)

    cache.put('a', 'A', [log])
    assert (cache.get('a'), cache.items(), len(cache)) == ('A', ['A'], 1)
    clock.advance(61)

    assert (cache.get('a'), len(cache), log.is_on_disk) == (None, 0, False)


async def test_oldest_logs_are_evicted_above_the_size_limit():
    """004-30: Bounded or windowed buffer, or spill to disk, for very large responses."""
    cache = make_cache(FakeClock())

    for name in 'abc':
        cache.put(name, name, [log_of(400)])

    assert cache.items() == ['b', 'c']
    assert sum(log.size_bytes for log in cache.logs) == 800
    cache.clear()
    assert cache.items() == []


async def test_log_cache_limits_open_files():
    cache = make_cache(FakeClock(), max_bytes=10**9)

    for number in range(MAX_FILES + 3):
        cache.put(str(number), str(number), [log_of(100, memory_bytes=10)])

    assert len(cache) == MAX_FILES
    assert sum(log.is_on_disk for log in cache.logs) == MAX_FILES
    cache.clear()
