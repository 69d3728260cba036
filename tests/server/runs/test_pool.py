"""Runs as tasks of the server: limits, shutdown and failures."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from pydantic_deep import Approve, create_deep_agent
from pydantic_deep.server import ServerSettings
from pydantic_deep.server._metrics import ServerMetrics
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.runs._pool import RunPool
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.store import Commit, Committed, SqlStore, StoreUnavailableError
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import ScriptedModel, Step, call
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
