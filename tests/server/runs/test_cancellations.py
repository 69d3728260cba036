"""Runs that a server executes itself are cancelled at any other server of the store, through every API."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, cast

import anyio
import anyio.lowlevel
import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import CancelTaskRequest
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.dispatch import Worker
from pydantic_deep.server import AnyAgent, ServerSettings
from pydantic_deep.server._lifespan import recover
from pydantic_deep.server.routes import _turns
from pydantic_deep.server.runs import _pool
from pydantic_deep.store import RunRecord, SqlStore, StoreUnavailableError, new_id, open_store
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from tests.server.conftest import BASE_URL, Client, Gate, Serve, Served
from tests.server.mcp.conftest import over_http
from tests.server.ui.conftest import asked

pytestmark = pytest.mark.anyio

SETTINGS = ServerSettings(requests_per_second=1000, request_burst=100_000)


def _answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    return call('hold') if len(messages) == 1 else 'Done.'


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    """An agent whose first call waits for the gate."""
    tools = FunctionToolset[Any]()
    tools.add_function(gate.hold, metadata={'effect': 'read'})
    return {'analyst': create_deep_agent(ScriptedModel(then=_answer), toolsets=[tools], name='analyst')}


@pytest.fixture(autouse=True)
def intervals(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Tests do not wait for the intervals at which processes look into the store."""
    seconds: float = getattr(request, 'param', 0.01)
    for name in ('CANCEL_SECONDS', 'ORPHAN_SECONDS', 'CONFIRM_SECONDS'):
        monkeypatch.setattr(f'pydantic_deep.dispatch._worker.{name}', 0.01)
    for module, name in ((_pool, 'CANCEL_SECONDS'), (_turns, 'POLL_SECONDS')):
        monkeypatch.setattr(module, name, seconds)


@dataclass(kw_only=True)
class Servers:
    """Two servers on one database, each with a store of its own."""

    served: list[Served]
    first: Client
    second: Client
    gate: Gate

    async def begin(self) -> str:
        """Begin a turn at the first server, and return the id of its run, which waits in a tool."""
        created = await self.first.post('/api/conversations', json={'agent': 'analyst'})
        path = f'/api/conversations/{created.json()["id"]}/turns?wait=false'
        turn = await self.first.post(path, json={'prompt': 'Hi'})
        assert turn.status_code == 202, turn.text
        await self.gate.reached.wait()
        return turn.json()['id']

    async def run(self, id: str) -> dict[str, Any]:
        """Return a run, as the first server shows it."""
        return (await self.first.get(f'/api/runs/{id}')).json()

    @property
    def store(self) -> SqlStore:
        """The store of the second server."""
        return self.served[1].store


@pytest.fixture
async def servers(serve: Serve, gate: Gate) -> AsyncGenerator[Servers]:
    """Two servers that execute their runs themselves."""
    url = f'memory:{new_id()}'
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(url)) for _ in range(2)]
        served = [await stack.enter_async_context(serve(settings=SETTINGS, store=store)) for store in stores]
        key = await served[0].key('run', 'approve')
        first, second = [await stack.enter_async_context(each.client(key)) for each in served]
        yield Servers(served=served, first=first, second=second, gate=gate)


async def test_run_is_cancelled_at_another_server(servers: Servers) -> None:
    """The server that executes it reads the request in the store, and commits the completed work; both servers then show
    the end.
    """
    run = await servers.begin()

    cancelled = await servers.second.post(f'/api/runs/{run}/cancel')

    assert (cancelled.status_code, cancelled.json()['state']) == (200, 'interrupted'), cancelled.text
    shown = await servers.run(run)
    assert (shown['state'], shown['version_id']) == ('interrupted', cancelled.json()['version_id'])
    again = await servers.second.post(f'/api/runs/{run}/cancel')
    assert (again.status_code, again.json()['state']) == (200, 'interrupted')
    deleted = await servers.first.delete(f'/api/conversations/{shown["conversation_id"]}')
    assert deleted.status_code == 204, deleted.text


async def test_run_is_cancelled_at_another_server_over_mcp(servers: Servers) -> None:
    """The tool `cancel_run` cancels a run that another server executes."""
    run = await servers.begin()

    async with over_http(servers.served[1]) as tools:
        result = await tools.call_tool('cancel_run', {'run': run})

    assert result.structured_content is not None
    assert result.structured_content['state'] == 'interrupted'
    assert (await servers.run(run))['state'] == 'interrupted'


async def test_run_is_cancelled_at_another_server_over_a2a(servers: Servers) -> None:
    """A task that another server works on is cancelled."""
    run = await servers.begin()

    key = await servers.served[1].key('run', 'approve')
    transport = httpx.ASGITransport(servers.served[1].app)
    async with httpx.AsyncClient(transport=transport, headers={'authorization': f'Bearer {key}'}) as http:
        card = await A2ACardResolver(http, f'{BASE_URL}/a2a/analyst').get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        await client.cancel_task(CancelTaskRequest(id=run))

    assert (await servers.run(run))['state'] == 'interrupted'


async def test_response_is_cancelled_at_another_server(servers: Servers) -> None:
    """A background response of OpenAI's API that another server works on is cancelled."""
    body = {'model': 'analyst', 'input': 'Hi', 'background': True}
    made = (await servers.first.post('/v1/responses', json=body)).json()
    await servers.gate.reached.wait()

    cancelled = await servers.second.post(f'/v1/responses/{made["id"]}/cancel')

    assert (cancelled.status_code, cancelled.json()['status']) == (200, 'cancelled'), cancelled.text


async def test_run_of_a_user_interface_is_cancelled_at_another_server(servers: Servers) -> None:
    """The stream of an AG-UI client ends with an error, and not like a run that succeeded."""
    answers: list[httpx.Response] = []

    async def ask() -> None:
        answers.append(await servers.first.post('/ag-ui/analyst', json=asked('Hi')))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await servers.gate.reached.wait()
        [working] = servers.served[0].state.runs.runs_of('ada')
        cancelled = await servers.second.post(f'/api/runs/{working.id}/cancel')
        assert (cancelled.status_code, cancelled.json()['state']) == (200, 'interrupted'), cancelled.text

    assert 'RUN_ERROR' in answers[0].text


async def test_request_stays_in_the_store_if_the_process_does_not_end_the_run_in_time(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is 503, and the run ends when its process reads the request."""
    monkeypatch.setattr(_turns, 'CANCEL_SECONDS', 0.1)
    run = await servers.begin()
    pool = servers.served[0].state.runs

    async def no_news() -> list[str]:
        return []

    with monkeypatch.context() as patched:  # a process that hangs
        patched.setattr(pool.queue, 'cancelled', no_news)
        slow = await servers.second.post(f'/api/runs/{run}/cancel')
        assert (await servers.run(run))['state'] == 'running'
    working = pool.get(run)
    assert working is not None
    await working.wait()

    assert slow.status_code == 503
    assert slow.json()['error']['message'] == (
        f'The request to cancel run {run} is stored, but the process that executes the run has not ended it yet. Read the '
        'run later.'
    )
    assert working.state == 'interrupted'


async def test_server_waits_for_a_store_that_cannot_be_asked_for_cancellations(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither an outage, which is logged once, nor another error ends the server; the next time, it reads the request."""
    run = await servers.begin()
    queue = servers.served[0].state.runs.queue
    assert queue is not None
    outage = [StoreUnavailableError('The server restarts.') for _ in range(3)]
    cancelled, failures = queue.cancelled, [*outage, ValueError('Damaged.')]

    async def fail() -> list[str]:
        if failures:
            raise failures.pop()
        return await cancelled()

    monkeypatch.setattr(queue, 'cancelled', fail)
    answer = await servers.second.post(f'/api/runs/{run}/cancel')

    assert (answer.status_code, failures) == (200, [])
    assert caplog.text.count('The server waits for its store: The server restarts.') == 1


@pytest.mark.parametrize('intervals', [3600], indirect=True)  # the test asks, not the server
async def test_idle_server_asks_for_no_cancellations(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """One query serves all runs of a process, and none is needed while there are no runs."""
    pool = servers.served[0].state.runs
    queue = pool.queue
    assert queue is not None
    queries: list[int] = []
    cancelled = queue.cancelled

    async def count() -> list[str]:
        queries.append(1)
        return await cancelled()

    monkeypatch.setattr(queue, 'cancelled', count)
    await pool.cancel_requested()
    assert queries == []
    for _ in range(2):
        await servers.begin()
    await pool.cancel_requested()
    assert queries == [1]
    await pool.stop()


async def test_store_without_a_name_is_never_asked_for_cancellations(serve: Serve, store: SqlStore) -> None:
    """No other process can have it open."""
    assert not store.queue.is_shared
    async with serve(store=store) as served, open_store(f'memory:{new_id()}') as named:
        assert served.state.runs.queue is store.queue
        assert named.queue.is_shared


async def _crashed(
    store: SqlStore, agents: Mapping[str, AnyAgent], gate: Gate, *, cancelled: bool = False
) -> RunRecord:
    """Begin a run in a process that crashes in a tool, after somebody has requested to cancel the run; return it."""
    gate.reached = anyio.Event()
    async with open_store(store.url) as crashed, anyio.create_task_group() as group:
        agent = VersionedAgent(cast('Any', agents['analyst']), crashed)
        root = await agent.create(metadata={'server.owner': 'ada'})
        group.start_soon(root.advance, 'Hi')
        await gate.reached.wait()
        [run] = await crashed.runs(conversation_id=root.conversation_id)
        gate.reached = anyio.Event()
        if cancelled:
            assert await store.queue.request_cancel(run.id) is None
        await crashed.release_run(run.id)
        group.cancel_scope.cancel()
        return run
    raise AssertionError  # for the type checker, since a task group may suppress exceptions


async def _ended(store: SqlStore, run: RunRecord) -> RunRecord:
    """Wait until a run has ended without another attempt, and return it."""
    while (ended := await store.run(run.id)) is None or ended.state == 'running':
        await anyio.lowlevel.checkpoint()
    assert await store.runs(conversation_id=run.conversation_id) == [ended]
    return ended


@pytest.fixture
def slow_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no worker take over runs: the server resumes them when it starts, or on request."""
    monkeypatch.setattr('pydantic_deep.dispatch._worker.CONFIRM_SECONDS', math.inf)

    def never(worker: Worker, run: RunRecord) -> bool:
        return False

    monkeypatch.setattr(Worker, 'takes_over', never)


@pytest.fixture
async def shared() -> AsyncGenerator[SqlStore]:
    """A store whose database others can open."""
    async with open_store(f'memory:{new_id()}') as store:
        yield store


async def test_server_that_starts_ends_the_cancelled_run_of_a_crashed_process(
    serve: Serve, shared: SqlStore, agents: Mapping[str, AnyAgent], gate: Gate, slow_worker: None
) -> None:
    """A process that crashes before it has read the request loses nothing: the run is ended, and not resumed."""
    run = await _crashed(shared, agents, gate, cancelled=True)
    async with serve(settings=SETTINGS, store=shared) as served:
        await recover(served.state)

    assert (await _ended(shared, run)).state == 'interrupted'


async def test_worker_ends_the_cancelled_run_of_a_crashed_process(
    serve: Serve, shared: SqlStore, agents: Mapping[str, AnyAgent], gate: Gate
) -> None:
    """The worker that takes the run over ends it."""
    async with serve(store=shared):
        run = await _crashed(shared, agents, gate, cancelled=True)

        assert (await _ended(shared, run)).state == 'interrupted'


@pytest.mark.parametrize('by_worker', [False, True], ids=['by a server', 'by a worker'])
async def test_run_that_was_resumed_is_cancelled(
    serve: Serve,
    shared: SqlStore,
    agents: Mapping[str, AnyAgent],
    gate: Gate,
    request: pytest.FixtureRequest,
    *,
    by_worker: bool,
) -> None:
    """A server that resumes a run on request, or a worker that takes it over, is not the one that began it. It reads the
    request to cancel it, too.
    """
    if not by_worker:
        request.getfixturevalue('slow_worker')
    async with serve(settings=SETTINGS, store=shared) as served, served.client(await served.key('run')) as ada:
        run = await _crashed(shared, agents, gate)
        if not by_worker:
            resumed = await ada.post(f'/api/runs/{run.id}/resume')
            assert resumed.status_code == 202, resumed.text
        await gate.reached.wait()

        cancelled = await ada.post(f'/api/runs/{run.id}/cancel')

        assert (cancelled.status_code, cancelled.json()['state']) == (200, 'interrupted'), cancelled.text


async def test_run_that_is_resumed_at_the_start_is_cancelled(
    serve: Serve, shared: SqlStore, agents: Mapping[str, AnyAgent], gate: Gate, slow_worker: None
) -> None:
    """A run that a server recovers when it starts can be cancelled."""
    run = await _crashed(shared, agents, gate)
    async with (
        serve(settings=SETTINGS, store=shared) as served,
        served.client(await served.key('run')) as ada,
        anyio.create_task_group() as group,
    ):
        group.start_soon(recover, served.state)
        await gate.reached.wait()
        cancelled = await ada.post(f'/api/runs/{run.id}/cancel')
        assert (cancelled.status_code, cancelled.json()['state']) == (200, 'interrupted'), cancelled.text
