"""`run_worker` in this process: runs, signals, audit records, dispatchers."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import StateBackend
from pydantic_deep.audit import AUDIT_FIELDS, AuditRecord
from pydantic_deep.dispatch import InProcessDispatcher, WorkerEvent, submit
from pydantic_deep.repository import SqlRepository
from pydantic_deep.server import AnyAgent, InvalidAgentsError, InvalidSettingsError, ServerSettings, run_worker
from pydantic_deep.server._state import OWNER
from pydantic_deep.store import QueuedRunRecord, SqlStore, open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import TurnOptions, VersionedAgent
from tests.server.test_lifespan import agent, crashed, store_orphan

pytestmark = pytest.mark.anyio


class Running:
    """A worker in this process, and its events."""

    def __init__(self) -> None:
        self.detail = ''
        self.events: list[WorkerEvent] = []
        self.stopped_with: list[int] = []
        self._changed = anyio.Event()

    def add(self, event: WorkerEvent) -> None:
        self.events.append(event)
        self._changed.set()

    async def wait_for(self, kind: str) -> WorkerEvent:
        while True:
            for event in self.events:
                if event.kind == kind:
                    return event
            self._changed = anyio.Event()
            await self._changed.wait()


@asynccontextmanager
async def working(
    store: SqlStore, served: AnyAgent, number: int = signal.SIGTERM, **settings: object
) -> AsyncGenerator[Running]:
    """Run a worker. At the end, send it a signal and wait for it."""
    running, started = Running(), anyio.Event()

    def on_start(detail: str) -> None:
        running.detail = detail
        started.set()

    work = partial(
        run_worker,
        {'analyst': served},
        store,
        ServerSettings.model_validate(settings),
        on_start=on_start,
        on_event=running.add,
        on_stop=running.stopped_with.append,
    )
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await started.wait()
            yield running
            signal.raise_signal(number)


async def queue(store: SqlStore) -> QueuedRunRecord:
    root = await VersionedAgent(agent(name='analyst'), store).create(metadata={OWNER: 'ada'})
    return await submit(root, TurnOptions(prompt='Hi'), store, session_id='s1')


async def audit_records(store: SqlStore) -> list[AuditRecord]:
    audit = await SqlRepository[AuditRecord].open(store, AuditRecord, fields=AUDIT_FIELDS, name='server_audit')
    try:
        return (await audit.list()).items
    finally:
        await audit.aclose()


async def test_worker_executes_queued_runs_with_audit_records(store: SqlStore) -> None:
    """The record has the owner of the conversation and the session of the request, as on a server."""
    async with working(store, agent('Hello.')) as running:
        run = await queue(store)
        ended = await running.wait_for('ended')
    assert (ended.run_id, ended.state, running.detail) == (run.run_id, 'complete', 'none')
    [record] = await audit_records(store)
    shown = (record.owner, record.agent_name, record.status, record.metadata.get('session_id'))
    assert shown == ('ada', 'analyst', 'success', 's1')


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
async def test_signal_drains_running_runs(store: SqlStore, number: int) -> None:
    """After the first signal, the system's default action applies to SIGINT, which ends the process at once."""
    continued, before = anyio.Event(), signal.getsignal(signal.SIGINT)

    async def wait(messages: list[ModelMessage], info: AgentInfo) -> str:
        await continued.wait()
        return 'The end.'

    async def continue_when_stopping() -> None:
        while not running.stopped_with:
            await anyio.lowlevel.checkpoint()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        await queue(store)  # it is not taken any more
        continued.set()

    served = agent()
    async with anyio.create_task_group() as group, working(store, served, number, shutdown_seconds=1000) as running:
        with served.override(model=ScriptedModel(then=wait)):
            await queue(store)
            await running.wait_for('began')
        group.start_soon(continue_when_stopping)
    assert [event.kind for event in running.events] == ['began', 'ended']
    assert running.stopped_with == [1]
    assert (await store.queue.measures())['queued'] == 1
    assert signal.getsignal(signal.SIGINT) is before


async def test_runs_that_take_too_long_are_given_back(store: SqlStore) -> None:
    async def wait(messages: list[ModelMessage], info: AgentInfo) -> str:
        await anyio.sleep_forever()
        return ''

    served = agent()
    async with working(store, served, shutdown_seconds=0) as running:
        with served.override(model=ScriptedModel(then=wait)):
            run = await queue(store)
            await running.wait_for('began')
    assert [event.kind for event in running.events] == ['began', 'given_back']
    again = await store.queue.get(run.run_id)
    assert again is not None
    assert (again.state, again.worker) == ('queued', None)


async def crash(store: SqlStore) -> str:
    """Store a run of a crashed process, with its audit record."""
    root = await VersionedAgent(agent(name='analyst'), store).create(metadata={OWNER: 'ada'})
    run_id = await store_orphan(store.url, await store.version(root.id))
    audit = await SqlRepository[AuditRecord].open(store, AuditRecord, fields=AUDIT_FIELDS, name='server_audit')
    await audit.create(crashed(run_id))
    await audit.aclose()
    return run_id


@pytest.fixture
async def shared() -> AsyncGenerator[SqlStore]:
    """A store that another store of this process can share."""
    async with open_store('memory:worked') as store:
        yield store


@pytest.mark.slow
async def test_audit_record_of_a_crashed_process_ends_when_its_run_is_taken_over(shared: SqlStore) -> None:
    run_id = await crash(shared)
    async with working(shared, agent('Hello.')) as running:
        assert (await running.wait_for('taken_over')).run_id == run_id
        await running.wait_for('ended')
        while [record for record in await audit_records(shared) if record.status == 'running']:
            pass
    assert sorted(record.status for record in await audit_records(shared)) == ['crashed', 'success']


@pytest.mark.slow
async def test_failed_cleanup_of_audit_records_is_logged(
    shared: SqlStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError('broken')

    monkeypatch.setattr('pydantic_deep.server._audited_agents.finish_audit_records', fail)
    await crash(shared)
    async with working(shared, agent('Hello.')) as running:
        await running.wait_for('ended')
        while 'The audit records of crashed runs could not be ended' not in caplog.messages:
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def open_test_dispatcher(url: str) -> AsyncGenerator[InProcessDispatcher]:
    if url != 'temporal://one':
        raise ValueError(f'There is no server at {url!r}.')
    yield InProcessDispatcher()


async def test_worker_opens_its_dispatcher(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('pydantic_deep.server._dispatcher.open_dispatcher', open_test_dispatcher)
    async with working(store, agent('Hello.'), dispatcher='temporal://one') as running:
        assert running.detail == 'Runs are executed in this process.'


def fetch(url: str) -> str:
    return httpx.get(url, trust_env=False).text


async def test_worker_serves_its_metrics_while_it_runs(store: SqlStore) -> None:
    async with working(store, agent('Hello.'), metrics_port=0) as running:
        await queue(store)
        await running.wait_for('ended')
        url = running.detail.removeprefix('none; metrics ')
        text = await anyio.to_thread.run_sync(fetch, url)
    lines = [line for line in text.splitlines() if line.startswith('pydantic_deep_worker')]
    assert [line for line in lines if '_created' not in line] == [
        'pydantic_deep_worker_runs_total{agent="analyst",event="began",state="running"} 1.0',
        'pydantic_deep_worker_runs_total{agent="analyst",event="ended",state="complete"} 1.0',
        'pydantic_deep_worker_runs_running 0.0',
    ]
    assert re.search(r'pydantic_deep_store_commit_seconds_count [1-9]', text)
    assert store.commit_listeners == []
    with pytest.raises(httpx.ConnectError):
        await anyio.to_thread.run_sync(fetch, url)


async def test_port_that_is_in_use_is_reported(store: SqlStore) -> None:
    with socket.create_server(('127.0.0.1', 0)) as other:
        port = other.getsockname()[1]
        message = f'metrics_port: Metrics cannot be served at 127.0.0.1:{port}: Address already in use'
        with pytest.raises(InvalidSettingsError, match=message):
            await run_worker({'analyst': agent()}, store, ServerSettings(metrics_port=port))


async def test_dispatcher_that_cannot_be_opened_is_an_invalid_setting(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('pydantic_deep.server._dispatcher.open_dispatcher', open_test_dispatcher)
    with pytest.raises(InvalidSettingsError, match="dispatcher: There is no server at 'temporal://two'"):
        await run_worker({'analyst': agent()}, store, ServerSettings(dispatcher='temporal://two'))


async def test_worker_without_agents_is_refused(store: SqlStore) -> None:
    with pytest.raises(InvalidAgentsError, match='There are no agents'):
        await run_worker({}, store)


async def test_worker_fills_the_directories_of_its_setting(store: SqlStore, tmp_path: Path) -> None:
    files = StateBackend({'/note.txt': 'x'})
    root = await VersionedAgent(agent(name='analyst'), store).create(backend=files, metadata={OWNER: 'ada'})
    async with working(store, agent('Hello.'), work_dir=tmp_path / 'work') as running:
        await submit(root, TurnOptions(prompt='Hi'), store)
        ended = await running.wait_for('ended')
    assert ended.state == 'complete'
    assert (tmp_path / 'work' / root.conversation_id / 'note.txt').read_bytes() == b'x'
