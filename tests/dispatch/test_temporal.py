"""`TemporalDispatcher` on a real server that is stopped and started."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from pydantic_ai.durable_exec.temporal import AgentPlugin, PydanticAIPlugin, TemporalDurability
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Replayer, Worker

from pydantic_deep import DeepAgentDeps, StateBackend, create_deep_agent
from pydantic_deep.dispatch import Dispatcher, DispatcherUnavailableError, open_dispatcher
from pydantic_deep.dispatch._conversation_workflow import ConversationWorkflow
from pydantic_deep.dispatch.conformance import DispatcherSuite, EngineSwitch, FakeExecution, OpenDispatcher
from pydantic_deep.dispatch.temporal import SANDBOX, TemporalDispatcher
from pydantic_deep.testing import ScriptedModel
from tests.dispatch.temporal_server import TemporalServer, running_temporal

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(scope='module')
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[TemporalServer]:
    with running_temporal(tmp_path_factory.mktemp('temporal')) as server:
        yield server


@pytest.fixture
async def url(server: TemporalServer) -> str:
    """The URL of a new namespace."""
    namespace = f'test-{uuid.uuid4().hex}'
    await server.create_namespace(namespace)
    return f'temporal://127.0.0.1:{server.port}/{namespace}'


@pytest.fixture
async def dispatcher(url: str) -> TemporalDispatcher:
    return await TemporalDispatcher.open(url, heartbeat_seconds=3)


class TestTemporalDispatcher(DispatcherSuite):
    has_priorities = False  # only within a conversation

    @pytest.fixture
    def open_dispatcher(self, url: str) -> OpenDispatcher:
        async def open_one() -> Dispatcher:
            return await TemporalDispatcher.open(url, heartbeat_seconds=3)

        return open_one

    @pytest.fixture
    def switch(self, server: TemporalServer) -> EngineSwitch:
        return server


@asynccontextmanager
async def working(
    dispatcher: Dispatcher, execution: FakeExecution, *agent_names: str, concurrency: int = 4
) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:

        async def work() -> None:
            await dispatcher.work(execution, agent_names=agent_names or ['analyst'], concurrency=concurrency)

        group.start_soon(work)
        yield
        group.cancel_scope.cancel()


async def submit(dispatcher: Dispatcher, run_id: str, *, agent_name: str = 'analyst', priority: int = 0) -> None:
    await dispatcher.submit(run_id, agent_name=agent_name, conversation_id='c', priority=priority)


def client_of(url: str) -> tuple[str, str]:
    host, _, namespace = url.removeprefix('temporal://').partition('/')
    return host, namespace


async def test_runs_of_a_conversation_are_executed_one_at_a_time_by_priority(dispatcher: TemporalDispatcher) -> None:
    execution = FakeExecution(finished=False)
    async with working(dispatcher, execution):
        await submit(dispatcher, 'first')
        await execution.wait_until(lambda: execution.running == {'first'})
        for run_id, priority in (('low', -9), ('normal', 0), ('high', 9), ('first', 0), ('withdrawn', 0)):
            await submit(dispatcher, run_id, priority=priority)
        await dispatcher.cancel('withdrawn', conversation_id='c')
        execution.finish()
        await execution.wait_until(lambda: len(execution.ended) == 4)
    assert execution.started == ['first', 'high', 'normal', 'low']
    assert execution.max_running == 1


async def test_worker_of_several_agents_executes_their_runs_within_one_limit(dispatcher: TemporalDispatcher) -> None:
    execution = FakeExecution(finished=False)
    for name in ('analyst', 'writer'):
        for number in range(2):
            run_id = f'{name}-{number}'
            await dispatcher.submit(run_id, agent_name=name, conversation_id=run_id)
    async with working(dispatcher, execution, 'analyst', 'writer', concurrency=2):
        await execution.wait_until(lambda: len(execution.running) == 2)
        execution.finish()
        await execution.wait_until(lambda: len(execution.ended) == 4)
    assert execution.max_running == 2


async def test_workflow_of_a_conversation_ends_with_its_runs_and_can_be_replayed(
    url: str, dispatcher: TemporalDispatcher
) -> None:
    execution = FakeExecution(failing=['a'])
    async with working(dispatcher, execution):
        for run_id in ('a', 'b'):
            await submit(dispatcher, run_id)
        await execution.wait_until(lambda: len(execution.ended) == 2)
        address, namespace = client_of(url)
        client = await Client.connect(address, namespace=namespace)
        handle = client.get_workflow_handle('pydantic-deep-conversation-c')
        await handle.result()
    history = await handle.fetch_history()
    await Replayer(workflows=[ConversationWorkflow], workflow_runner=SANDBOX).replay_workflow(history)
    assert 'cannot be executed' not in history.to_json()  # the text of an exception may contain secrets


async def test_long_history_is_continued_in_a_new_one(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Temporal suggests this after thousands of events; this server does after some."""
    with running_temporal(
        tmp_path_factory.mktemp('temporal'), '--dynamic-config-value', 'limit.historyCount.suggestContinueAsNew=20'
    ) as server:
        dispatcher = await TemporalDispatcher.open(f'temporal://127.0.0.1:{server.port}', heartbeat_seconds=3)
        execution = FakeExecution(finished=False)
        async with working(dispatcher, execution):
            for number in range(8):
                await submit(dispatcher, str(number))
            await execution.wait_until(lambda: execution.running == {'0'})
            execution.finish()
            await execution.wait_until(lambda: len(execution.ended) == 8)
        client = await Client.connect(f'127.0.0.1:{server.port}')
        assert execution.started == [str(number) for number in range(8)]
        assert (await client.count_workflows("ExecutionStatus = 'ContinuedAsNew'")).count >= 1


CRASHING = """
import asyncio, sys
from pydantic_deep.dispatch.temporal import SANDBOX, TemporalDispatcher

async def main():
    dispatcher = await TemporalDispatcher.open(sys.argv[1], heartbeat_seconds=3)
    async def execute(run_id):
        print(run_id, flush=True)
        await asyncio.sleep(600)
    await dispatcher.work(execute, agent_names=['analyst'], concurrency=1)

asyncio.run(main())
"""


async def test_run_of_a_crashed_worker_is_delivered_to_another(url: str, dispatcher: TemporalDispatcher) -> None:
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


@pytest.mark.parametrize(
    'url', ['temporal://', 'temporal:///namespace', 'temporal://me@host/n', 'temporal://host/n?tls=1', 'temporal://host/a/b'],
)  # fmt: skip
async def test_other_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match='temporal://host:port/namespace'):
        async with open_dispatcher(url):
            pass


async def test_server_that_cannot_be_reached_is_reported() -> None:
    with pytest.raises(DispatcherUnavailableError, match=r"Temporal at \[::1\]:1, namespace 'default', is unavailable"):
        async with open_dispatcher('temporal://[::1]:1'):
            pass


async def test_worker_of_the_library_that_ends_is_started_again(
    dispatcher: TemporalDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = anyio.Event()
    started: list[str] = []

    class EndingWorker:
        def __init__(self, client: Client, *, task_queue: str, **_: object) -> None:
            started.append(task_queue)

        async def run(self) -> None:
            if len(started) == 2:
                again.set()
                await anyio.sleep_forever()

        async def shutdown(self) -> None:
            again.set()

    monkeypatch.setattr('pydantic_deep.dispatch.temporal.Worker', EndingWorker)
    monkeypatch.setattr('pydantic_deep.dispatch.temporal._RECONNECT_SECONDS', 0)
    async with working(dispatcher, FakeExecution()):
        await again.wait()

    assert started == ['pydantic-deep-analyst'] * 2


agent = create_deep_agent(ScriptedModel('Done.'), name='deep', capabilities=[TemporalDurability[DeepAgentDeps]()])


@workflow.defn(sandboxed=False)
class DeepAgentWorkflow:
    @workflow.run
    async def run(self) -> str:
        return (await agent.run('Go', deps=DeepAgentDeps(backend=StateBackend()))).output


async def test_deep_agent_in_a_workflow_of_pydantic_ai_is_refused_with_the_dispatcher_to_use(url: str) -> None:
    address, namespace = client_of(url)
    client = await Client.connect(address, namespace=namespace, plugins=[PydanticAIPlugin()])
    async with Worker(client, task_queue='q', workflows=[DeepAgentWorkflow], plugins=[AgentPlugin(agent)]):
        with pytest.raises(WorkflowFailureError) as caught:
            await client.execute_workflow(DeepAgentWorkflow.run, id='w', task_queue='q')
    assert "open_dispatcher('temporal://host:port/namespace')" in str(caught.value.cause)
