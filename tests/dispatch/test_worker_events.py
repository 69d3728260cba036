"""The events of a worker: which runs begin, are taken over, end, or are given back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import VersionedAgent, create_deep_agent
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.dispatch import Worker, WorkerEvent, submit
from pydantic_deep.store import Commit, RunRecord, SqlStore, new_id, open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import TurnOptions

pytestmark = pytest.mark.anyio


class Events:
    """The events of a worker, as `kind state`."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self._changed = anyio.Event()

    def __call__(self, event: WorkerEvent) -> None:
        self.shown.append(f'{event.kind} {event.state}')
        self._changed.set()

    async def wait_for(self, kind: str) -> None:
        with anyio.fail_after(60):
            while not any(line.startswith(kind) for line in self.shown):
                self._changed = anyio.Event()
                await self._changed.wait()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take over the runs of a crashed process as soon as its lock is missing."""
    monkeypatch.setattr('pydantic_deep.dispatch._worker.CONFIRM_SECONDS', 0.0)


@pytest.fixture
async def store() -> AsyncGenerator[SqlStore]:
    async with open_store('memory:events') as store:
        yield store


def agent(store: SqlStore, then: Callable[..., object] | None = None) -> VersionedAgent[DeepAgentDeps, str]:
    model = ScriptedModel('Hello.') if then is None else ScriptedModel(then=then)  # pyright: ignore[reportArgumentType]
    return VersionedAgent(create_deep_agent(model, name='analyst'), store)


async def wait_forever(messages: list[ModelMessage], info: AgentInfo) -> str:
    await anyio.sleep_forever()
    return ''


@asynccontextmanager
async def working(then: Callable[..., object] | None = None) -> AsyncGenerator[Events]:
    """Run a worker that is a process of its own for the store, and does not wait for runs when it stops."""
    events = Events()
    async with open_store('memory:events') as own, anyio.create_task_group() as group:
        worker = Worker({'analyst': agent(own, then)}, own, drain_seconds=0, on_event=events)
        await group.start(worker.run)
        yield events
        worker.stop()


async def test_run_begins_and_ends(store: SqlStore) -> None:
    run = await submit(await agent(store).create(), TurnOptions(prompt='Hi'), store)
    events: list[WorkerEvent] = []
    worker = Worker({'analyst': agent(store)}, store, on_event=events.append)
    await worker.execute(run.run_id)
    shown = [(event.kind, event.run_id, event.agent_name, event.conversation_id, event.state) for event in events]
    assert shown == [
        ('began', run.run_id, 'analyst', run.conversation_id, 'running'),
        ('ended', run.run_id, 'analyst', run.conversation_id, 'complete'),
    ]


async def test_run_is_executed_even_if_its_events_cannot_be_reported(
    store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Standard error, for example, was closed. Its claim would keep the run from all other workers."""
    run = await submit(await agent(store).create(), TurnOptions(prompt='Hi'), store)

    def fail(event: WorkerEvent) -> None:
        raise BrokenPipeError(event.kind)

    await Worker({'analyst': agent(store)}, store, on_event=fail).execute(run.run_id)
    (attempt,) = await store.runs()
    assert (attempt.id, attempt.state) == (run.run_id, 'complete')
    assert caplog.text.count('could not be reported') == 2


async def test_run_that_cannot_begin_ends_as_failed(store: SqlStore) -> None:
    root = await agent(store).create()
    run = await submit(root, TurnOptions(prompt='Hi'), store)
    await store.delete(root.id)
    events = Events()
    await Worker({'analyst': agent(store)}, store, on_event=events).execute(run.run_id)
    assert events.shown == ['began running', 'ended failed']


async def test_run_that_is_cancelled_before_it_begins_ends_as_interrupted(store: SqlStore) -> None:
    run = await submit(await agent(store).create(), TurnOptions(prompt='Hi'), store)
    assert await store.queue.claim(run.run_id) is not None
    await store.queue.request_cancel(run.run_id)
    await store.queue.release(run.run_id)
    events = Events()
    await Worker({'analyst': agent(store)}, store, on_event=events).execute(run.run_id)
    assert events.shown == ['resumed running', 'ended interrupted']


async def test_worker_that_stops_gives_runs_back_and_the_next_one_resumes_them(store: SqlStore) -> None:
    await submit(await agent(store).create(), TurnOptions(prompt='Hi'), store)
    async with working(wait_forever) as events:
        await events.wait_for('began')
    assert events.shown == ['began running', 'given_back running']
    async with working() as events:
        await events.wait_for('ended')
    assert events.shown == ['resumed running', 'ended complete']


async def test_run_that_a_crashed_worker_claimed_is_taken_over(store: SqlStore) -> None:
    run = await submit(await agent(store).create(), TurnOptions(prompt='Hi'), store)
    async with open_store('memory:events') as crashed:
        assert await crashed.queue.claim(run.run_id) is not None
    async with working() as events:
        await events.wait_for('ended')
    assert events.shown == ['taken_over running', 'ended complete']


async def test_run_of_a_crashed_process_that_was_not_queued_is_taken_over_too(store: SqlStore) -> None:
    root = await agent(store).create()
    run = RunRecord(
        id=new_id(), conversation_id=root.conversation_id, base_id=root.id, agent_name='analyst', attempt_of=None,
        parent_run_id=None, state='running', owner=None, prompt=b'"Hi"', options='{}', usage='{}', cost=None, error=None,
        trace_id=None, started_at=1, ended_at=None,
    )  # fmt: skip
    async with open_store('memory:events') as crashed:
        await crashed.commit(Commit(runs=[run]))
    async with working(wait_forever) as events:
        await events.wait_for('taken_over')
    assert events.shown == ['taken_over running', 'given_back running']
    async with working() as events:
        await events.wait_for('ended')
    assert events.shown == ['taken_over running', 'ended complete']
