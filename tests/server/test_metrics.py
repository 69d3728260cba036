"""Metrics of requests and runs."""

from __future__ import annotations

import httpx
import pytest
from inline_snapshot import snapshot
from starlette.applications import Starlette

from pydantic_deep.server._metrics import RequestCounter, ServerMetrics
from pydantic_deep.versions import TurnOptions
from tests.server.conftest import MakeClient, Serve, Served

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
    assert [line for line in counted if '_bytes' not in line] == snapshot(
        [
            'pydantic_deep_requests_total{method="GET",route="/api/agents/{agent}",status="200"} 1.0',
            'pydantic_deep_requests_total{method="GET",route="/api/agents/{agent}",status="404"} 1.0',
            'pydantic_deep_runs_total{agent="analyst",state="complete"} 1.0',
            'pydantic_deep_runs_running 0.0',
        ]
    )
    values = {line.split(' ')[0]: float(line.split(' ')[1]) for line in lines if not line.startswith('#')}
    assert values['pydantic_deep_tokens_total{agent="analyst",kind="output"}'] > 0
    assert values['pydantic_deep_log_bytes'] == run.log.size_bytes > 0
    assert values['pydantic_deep_log_memory_bytes'] == run.log.memory_bytes


async def test_applications_have_separate_metrics(serve: Serve) -> None:
    async with serve() as one, serve() as other, one.client() as client:
        await client.get('/health')
        assert b'/health' in one.state.metrics.render()
        assert b'/health' not in other.state.metrics.render()
