"""Metrics of requests and runs."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest
from inline_snapshot import snapshot
from starlette.applications import Starlette

from pydantic_deep import create_deep_agent
from pydantic_deep.dispatch import submit
from pydantic_deep.server._metrics import STORE_SECONDS, RequestCounter, ServerMetrics
from pydantic_deep.store import Decision, RunRecord, SqlStore, now, open_store
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import TurnOptions, VersionedAgent
from tests.server.conftest import MakeClient, Serve, Served
from tests.server.test_lifespan import store_orphan

pytestmark = pytest.mark.anyio


async def test_requests_are_counted_by_route_template(inner: Starlette) -> None:
    metrics = ServerMetrics()
    counted = RequestCounter(inner, metrics)
    transport = httpx.ASGITransport(counted, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url='http://localhost') as client:
        await client.get('/nothing/of/the/kind')
        await client.request('BREW', '/stream')
        await client.get('/fail')
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith('pydantic_deep_requests_total')]
    assert lines == [
        'pydantic_deep_requests_total{method="GET",route="unmatched",status="404"} 1.0',
        'pydantic_deep_requests_total{method="other",route="/stream",status="405"} 1.0',
        'pydantic_deep_requests_total{method="GET",route="/fail",status="500"} 1.0',
    ]


async def test_metrics_count_requests_and_runs(served: Served, make_client: MakeClient) -> None:
    client = await make_client('admin')
    root = await served.state.agents['analyst'].create(metadata={'server.owner': 'ada'})
    run = served.state.runs.start(root, TurnOptions(prompt='Hello', moves_head=True), owner='ada')
    await run.wait()
    await client.get('/api/agents/analyst')
    await client.get('/api/agents/nobody')
    lines = (await client.get('/metrics')).text.splitlines()
    counted = [line for line in lines if not line.startswith('#') and '_created' not in line and 'tokens' not in line]
    commits = [line for line in counted if line.startswith('pydantic_deep_store_commit_seconds')]
    assert re.fullmatch(r'pydantic_deep_store_commit_seconds_bucket\{le="\+Inf"\} [1-9].*', commits[-3])
    counted = [line for line in counted if line not in commits]
    assert [line for line in counted if '_bytes' not in line] == snapshot(
        [
            'pydantic_deep_requests_total{method="GET",route="/api/agents/{agent}",status="200"} 1.0',
            'pydantic_deep_requests_total{method="GET",route="/api/agents/{agent}",status="404"} 1.0',
            'pydantic_deep_runs_total{agent="analyst",state="complete"} 1.0',
            'pydantic_deep_runs_running 0.0',
            'pydantic_deep_queue_runs{state="queued"} 0.0',
            'pydantic_deep_queue_runs{state="running"} 0.0',
            'pydantic_deep_queue_oldest_seconds 0.0',
            'pydantic_deep_runs_suspended 0.0',
            'pydantic_deep_approvals_pending 0.0',
            'pydantic_deep_approvals_oldest_seconds 0.0',
        ]
    )
    values = {line.split(' ')[0]: float(line.split(' ')[1]) for line in lines if not line.startswith('#')}
    assert values['pydantic_deep_tokens_total{agent="analyst",kind="output"}'] > 0
    assert values['pydantic_deep_log_bytes'] == run.log.size_bytes > 0
    assert values['pydantic_deep_log_memory_bytes'] == run.log.memory_bytes


def shown(metrics: ServerMetrics) -> dict[str, float]:
    lines = metrics.render().decode().splitlines()
    return {line.split(' ')[0]: float(line.split(' ')[1]) for line in lines if not line.startswith('#')}


class _CountedStore(SqlStore):
    """A store that counts its reads of suspended runs."""

    reads = 0

    async def orphans(self, limit: int = 1000) -> list[RunRecord]:
        self.reads += 1
        return await super().orphans(limit)


async def test_metrics_of_the_store_count_queued_and_suspended_runs_and_pending_approvals(
    let_time_pass: Callable[[float], None],
) -> None:
    """They are read when they are scraped, and at most once in some seconds."""
    write = call('write_file', path='/a', content='x')
    agent = create_deep_agent(ScriptedModel(write), name='analyst', interrupt_on={'write_file': True})
    metrics = ServerMetrics()
    async with open_store('memory:measured') as opened:
        store = _CountedStore(opened.engine)
        root = await VersionedAgent(agent, store).create()
        await store_orphan(store.url, await store.version(root.id))
        first, second = [await submit(root, TurnOptions(prompt='Hi'), store) for _ in range(2)]
        assert await store.queue.claim(second.run_id) is not None
        await root.advance('Write')
        [approval] = await store.approvals()
        store.reads = 0
        await metrics.read_store(store)
        seen = shown(metrics)
        assert seen['pydantic_deep_queue_runs{state="queued"}'] == 1
        assert seen['pydantic_deep_queue_runs{state="running"}'] == 1
        assert seen['pydantic_deep_runs_suspended'] == 1
        assert seen['pydantic_deep_approvals_pending'] == 1
        assert 0 < seen['pydantic_deep_queue_oldest_seconds'] <= (now() - first.submitted_at) / 1e6
        assert 0 < seen['pydantic_deep_approvals_oldest_seconds'] <= (now() - approval.created_at) / 1e6
        denial = Decision(
            approval_id=approval.id, status='denied', decision='{}', arguments_digest=approval.arguments_digest
        )
        await store.decide([denial])
        await metrics.read_store(store)
        assert (store.reads, shown(metrics)) == (1, seen)
        let_time_pass(STORE_SECONDS)
        await metrics.read_store(store)
        assert (store.reads, shown(metrics)['pydantic_deep_approvals_pending']) == (2, 0)
        assert shown(metrics)['pydantic_deep_approvals_oldest_seconds'] == 0


async def test_applications_have_separate_metrics(serve: Serve) -> None:
    async with serve() as one, serve() as other, one.client() as client:
        await client.get('/health')
        assert b'/health' in one.state.metrics.render()
        assert b'/health' not in other.state.metrics.render()
