"""Suspended runs: the store did not accept their end. They are never failed, and are resumed or discarded on request."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings
from pydantic_deep.server._lifespan import recover
from pydantic_deep.server._state import OWNER
from pydantic_deep.server.runs import _stored_runs
from pydantic_deep.server.runs._stored_runs import load_running_runs, load_suspended_runs
from pydantic_deep.store import Commit, Committed, SqlStore, StoreUnavailableError, new_id, open_engine, open_store
from pydantic_deep.store.engine import Operation
from pydantic_deep.store.sqlite import SqliteEngine
from pydantic_deep.testing import Answer, ScriptedModel, call
from tests.server.conftest import Client, Gate, MakeClient, Serve, frames_in, told
from tests.server.test_lifespan import store_orphan

pytestmark = pytest.mark.anyio


def run(id: str, *, state: str = 'running', owner: str | None = 'dead') -> Any:
    return SimpleNamespace(id=id, state=state, owner=owner)


def store_and_pool(
    runs: list[Any], orphans: list[Any], *, is_recovering: bool = False, taken_over: str = ''
) -> tuple[Any, Any]:
    async def listed(**options: object) -> list[Any]:
        return runs

    async def orphaned(limit: int) -> list[Any]:
        return orphans

    store = SimpleNamespace(owner='me', runs=listed, orphans=orphaned)

    def takes_over(run: Any) -> bool:
        return run.id == taken_over

    pool = SimpleNamespace(resuming=set[str](), is_recovering=is_recovering, queue=None, takes_over=takes_over)
    return store, pool


async def test_run_being_recovered_counts_as_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Orphans of other conversations are ignored. While the server recovers runs, or its worker is about to, its own
    orphans are not suspended.
    """

    async def stays(store: object, run: object) -> bool:
        return False

    monkeypatch.setattr(_stored_runs, 'has_moved_on', stays)  # the real function needs a store
    mine, elsewhere = run('mine'), run('elsewhere')
    starting = store_and_pool([mine], [elsewhere, mine], is_recovering=True)
    started = store_and_pool([mine], [elsewhere, mine])
    working = store_and_pool([mine], [elsewhere, mine], taken_over='mine')

    for resuming in (starting, working):
        assert (await load_running_runs(*resuming, 'c'), await load_suspended_runs(*resuming, 'c')) == ([mine], [])
    assert (await load_running_runs(*started, 'c'), await load_suspended_runs(*started, 'c')) == ([], [mine])


T = TypeVar('T')


class Outage:
    """Availability of the database."""

    is_on = False


class OutageStore(SqlStore):
    """A store with a simulated outage of its database for reads and writes."""

    def __init__(self, engine: SqliteEngine) -> None:
        super().__init__(engine)
        self.outage = Outage()
        read, write = engine.read, engine.write

        async def checked_read(operation: Callable[[], Operation[T]]) -> T:
            self._check()
            return await read(operation)

        async def checked_write(operation: Callable[[], Operation[T]]) -> T:
            self._check()
            return await write(operation)

        engine.read, engine.write = checked_read, checked_write  # keys, audit records and threads use the engine too

    def _check(self) -> None:
        if self.outage.is_on:
            raise StoreUnavailableError('The database cannot be reached.')


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[OutageStore]:
    engine = await open_engine(f'sqlite:///{tmp_path}/a.db')
    assert isinstance(engine, SqliteEngine)
    async with OutageStore(engine) as store:
        yield store


class Effects:
    """Records tool calls with effects outside the store."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def send(self, key: str) -> str:
        """Send something."""
        self.done.append(key)
        return f'sent {key}'


@pytest.fixture
def effects() -> Effects:
    return Effects()


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """For each prompt: call `hold`, call `send` with the prompt, and answer."""
    prompt, count = '', 0
    for message in messages:
        if not isinstance(message, ModelRequest):
            count += 1
            continue
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                prompt, count = str(part.content), 0
    steps: list[Answer] = [call('hold'), call('send', key=prompt), f'Sent {prompt}.']
    return steps[count]


@pytest.fixture
def agents(gate: Gate, effects: Effects) -> Mapping[str, Any]:
    agent = create_deep_agent(ScriptedModel(then=answer), tools=[effects.send], name='analyst')
    agent.tool_plain(metadata={'effect': 'read'})(gate.hold)
    return {'analyst': agent}


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run')


async def begin(client: Client) -> str:
    return (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']


async def suspend(client: Client, path: str, store: OutageStore, gate: Gate) -> str:
    """Start a turn, simulate an outage during it, and return the id of the run after the outage."""
    answers: list[dict[str, Any]] = []

    async def say() -> None:
        answers.append((await client.post(f'{path}/turns', json={'prompt': 'first'})).json())

    async with anyio.create_task_group() as group:
        group.start_soon(say)
        await gate.reached.wait()
        store.outage.is_on = True
        gate.opened.set()
    store.outage.is_on = False
    assert answers[0]['state'] == 'suspended', 'the response reports the suspension although the store is unavailable'
    return answers[0]['id']


async def test_run_with_an_unaccepted_end_is_suspended_not_failed(ada: Client, store: OutageStore, gate: Gate) -> None:
    """The run, the conversation and the events report the state `suspended` for a run whose end the store did not
    accept."""
    path = await begin(ada)

    run_id = await suspend(ada, path, store, gate)

    run = (await ada.get(f'/api/runs/{run_id}')).json()
    events = told(frames_in((await ada.get(f'/api/runs/{run_id}/events')).content))
    conversation = (await ada.get(path)).json()
    [listed] = (await ada.get('/api/runs', params={'conversation': path.rpartition('/')[2]})).json()['items']
    assert (run['state'], run['has_moved_on'], run['error']['kind']) == ('suspended', False, 'run_suspended')
    assert [(event, fields.get('kind'), fields.get('status')) for event, fields in events[-2:]] == [
        ('error', 'run_suspended', 503),
        ('end', None, 'suspended'),
    ]
    assert (conversation['running'], conversation['suspended']) == ([], [run_id])
    assert listed['state'] == 'suspended'


async def test_cancelled_run_is_not_resumed_at_startup(
    serve: Serve, store: OutageStore, gate: Gate, effects: Effects
) -> None:
    """A cancellation is acknowledged with 200 only after the store has the end of the run."""
    async with serve() as served, served.client(await served.key()) as ada:
        path = await begin(ada)
        run_id = await suspend(ada, path, store, gate)
        store.outage.is_on = True
        away = await ada.post(f'/api/runs/{run_id}/cancel')
        store.outage.is_on = False
        cancelled = await ada.post(f'/api/runs/{run_id}/cancel')
        events = told(frames_in((await ada.get(f'/api/runs/{run_id}/events')).content))
        again = await ada.post(f'/api/runs/{run_id}/cancel')

    async with serve() as served, served.client(await served.key()) as ada:
        await recover(served.state)
        run = (await ada.get(f'/api/runs/{run_id}')).json()
        conversation = (await ada.get(path)).json()
        head = (await ada.get(f'/api/versions/{conversation["head"]}')).json()

    assert away.status_code == 503
    assert [each.status_code for each in (cancelled, again)] == [200, 200]
    assert cancelled.json()['state'] == again.json()['state'] == run['state'] == 'interrupted'
    assert events[-1][1]['status'] == 'interrupted'
    assert effects.done == []
    assert (conversation['suspended'], head['state'], head['prompt']) == ([], 'interrupted', 'first')


async def test_cancellation_during_an_outage_returns_503(
    serve: Serve, store: OutageStore, gate: Gate, effects: Effects
) -> None:
    """If the store cannot record the cancellation, the response is 503. A later cancellation succeeds."""
    async with serve() as served, served.client(await served.key()) as ada:
        path = await begin(ada)
        run = (await ada.post(f'{path}/turns', json={'prompt': 'x'}, params={'wait': 'false'})).json()
        await gate.reached.wait()
        own = served.state.runs.get(run['id'])
        assert own is not None
        cancel = own.cancel

        def cancel_and_lose() -> None:
            store.outage.is_on = True
            cancel()

        own.cancel = cancel_and_lose  # simulates an outage at the moment of the cancellation
        refused = await ada.post(f'/api/runs/{run["id"]}/cancel')
        await own.wait()
        store.outage.is_on = False
        own.cancel = cancel
        between = (await ada.get(f'/api/runs/{run["id"]}')).json()
        taken = await ada.post(f'/api/runs/{run["id"]}/cancel')

    async with serve() as served:
        await recover(served.state)

    assert refused.status_code == 503
    assert 'may resume' in refused.json()['error']['message']
    assert between['state'] == 'suspended'
    assert (taken.status_code, taken.json()['state']) == (200, 'interrupted')
    assert effects.done == []


async def test_run_of_a_continued_conversation_is_resumed_only_on_request(
    serve: Serve, store: OutageStore, gate: Gate, effects: Effects
) -> None:
    """At startup it remains suspended with `has_moved_on`, and it continues after a request to resume it."""
    async with serve() as served, served.client(await served.key()) as ada:
        path = await begin(ada)
        run_id = await suspend(ada, path, store, gate)
        again = (await ada.post(f'{path}/turns', json={'prompt': 'second'})).json()
    assert (again['state'], effects.done) == ('complete', ['second'])

    async with serve() as served, served.client(await served.key()) as ada:
        await recover(served.state)
        waiting = (await ada.get(f'/api/runs/{run_id}')).json()
        conversation = (await ada.get(path)).json()
        assert (waiting['state'], waiting['has_moved_on']) == ('suspended', True)
        assert (conversation['suspended'], conversation['head']) == ([run_id], again['version_id'])
        assert effects.done == ['second']

        resumed = await ada.post(f'/api/runs/{run_id}/resume')
        twice = await ada.post(f'/api/runs/{run_id}/resume')
        events = told(frames_in((await ada.get(f'/api/runs/{run_id}/events')).content))
        run = (await ada.get(f'/api/runs/{run_id}')).json()
        head = (await ada.get(path)).json()['head']

    assert (resumed.status_code, resumed.json()['state'], twice.status_code) == (202, 'running', 409)
    assert (run['state'], run['output'], events[-1][1]['status']) == ('complete', 'Sent first.', 'complete')
    assert effects.done == ['second', 'first']
    assert head == again['version_id'], 'the head of the conversation does not move'


async def test_run_that_fails_to_resume_remains_suspended(
    serve: Serve, store: OutageStore, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve() as served, served.client(await served.key()) as ada:
        run_id = await suspend(ada, await begin(ada), store, gate)
        read = store.orphans

        async def lose(limit: int = 1000) -> Any:
            if not served.state.runs.resuming:
                return await read(limit)
            raise StoreUnavailableError('The database cannot be reached.')

        store.orphans = lose
        resumed = await ada.post(f'/api/runs/{run_id}/resume')
        while served.state.runs.resuming:
            await anyio.lowlevel.checkpoint()
        after = (await ada.get(f'/api/runs/{run_id}')).json()
        served.state.runs.close()
        closed = await ada.post(f'/api/runs/{run_id}/resume')

    assert (resumed.status_code, after['state'], closed.status_code) == (202, 'suspended', 503)
    assert f'The run {run_id} could not be resumed' in caplog.text


async def test_resumed_run_counts_toward_the_limit_of_runs(
    serve: Serve, store: OutageStore, gate: Gate, settings: ServerSettings
) -> None:
    """With a limit of one run, a suspended run is not resumed during another, and no other starts while it is resumed."""
    async with serve(settings=settings.model_copy(update={'max_runs': 1})) as served:
        ada = served.client(await served.key())
        path = await begin(ada)
        run_id = await suspend(ada, path, store, gate)
        gate.reached, gate.opened = anyio.Event(), anyio.Event()
        other = await begin(ada)
        working = (await ada.post(f'{other}/turns?wait=false', json={'prompt': 'x'})).json()['id']
        refused = await ada.post(f'/api/runs/{run_id}/resume')
        await ada.post(f'/api/runs/{working}/cancel')
        gate.opened.set()
        while served.state.runs.running_count:
            await anyio.lowlevel.checkpoint()

        gate.reached, gate.opened = anyio.Event(), anyio.Event()
        resumed = await ada.post(f'/api/runs/{run_id}/resume')
        beside = await ada.post(f'{other}/turns', json={'prompt': 'y'})
        gate.opened.set()
        while served.state.runs.resuming:
            await anyio.lowlevel.checkpoint()
        run = (await ada.get(f'/api/runs/{run_id}')).json()

    assert (refused.status_code, resumed.status_code, beside.status_code) == (429, 202, 429)
    assert 'retry-after' in refused.headers
    assert run['state'] == 'complete'


async def test_suspended_run_is_resumed_at_startup(
    serve: Serve, store: OutageStore, gate: Gate, effects: Effects
) -> None:
    async with serve() as served, served.client(await served.key()) as ada:
        path = await begin(ada)
        run_id = await suspend(ada, path, store, gate)

    async with serve() as served, served.client(await served.key()) as ada:
        while served.state.runs.is_recovering:
            await anyio.lowlevel.checkpoint()
        events = told(frames_in((await ada.get(f'/api/runs/{run_id}/events')).content))
        run = (await ada.get(f'/api/runs/{run_id}')).json()

    assert (run['state'], events[-1][1]['status'], effects.done) == ('complete', 'complete', ['first'])


@pytest.mark.parametrize('fails', [False, True])
async def test_run_of_a_crashed_process_is_running_until_the_worker_has_tried_to_take_it_over(
    serve: Serve, gate: Gate, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """Its streams continue. Only a run that the worker could not continue is suspended."""
    gate.opened.set()
    monkeypatch.setattr('pydantic_deep.dispatch._worker.CONFIRM_SECONDS', math.inf)

    async def fail(*arguments: object, **options: object) -> None:
        raise StoreUnavailableError('The database cannot be reached.')

    async with (
        open_store(f'memory:{new_id()}') as store,
        serve(store=store) as served,
        served.client(await served.key()) as ada,
    ):
        while served.state.runs.is_recovering:
            await anyio.lowlevel.checkpoint()
        agent = served.state.agents['analyst']
        root = await agent.create(metadata={OWNER: 'ada'})
        run = f'/api/runs/{await store_orphan(store.url, await store.version(root.id))}'
        before = (await ada.get(run)).json()['state']
        resumed = await ada.post(f'{run}/resume')
        if fails:
            monkeypatch.setattr(agent, 'recover', fail)
        monkeypatch.setattr('pydantic_deep.dispatch._worker.CONFIRM_SECONDS', 0)
        events = told(frames_in((await ada.get(f'{run}/events')).content))

    assert (before, resumed.status_code) == ('running', 409)
    assert events[-1][1]['status'] == ('suspended' if fails else 'complete')


async def test_run_is_not_resumed_at_startup_after_a_head_move(
    serve: Serve, store: OutageStore, gate: Gate, effects: Effects
) -> None:
    async with serve() as served, served.client(await served.key()) as ada:
        path = await begin(ada)
        run_id = await suspend(ada, path, store, gate)
        assert (await ada.put(f'{path}/uploads/a.txt', content=b'a')).status_code == 201

    async with serve() as served, served.client(await served.key()) as ada:
        await recover(served.state)
        run = (await ada.get(f'/api/runs/{run_id}')).json()
        cancelled = (await ada.post(f'/api/runs/{run_id}/cancel')).json()

    assert (run['state'], run['has_moved_on'], effects.done) == ('suspended', True, [])
    assert cancelled['state'] == 'interrupted'


async def test_unstored_run_becomes_failed(ada: Client, store: OutageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = await begin(ada)
    commit = store.commit

    async def lose(batch: Commit) -> Committed:
        store.outage.is_on = store.outage.is_on or bool(batch.runs)
        return await commit(batch)

    monkeypatch.setattr(store, 'commit', lose)  # simulates an outage just before the turn starts
    run = (await ada.post(f'{path}/turns', json={'prompt': 'x'})).json()
    store.outage.is_on = False

    known = (await ada.get(f'/api/runs/{run["id"]}')).json()
    cancelled = await ada.post(f'/api/runs/{run["id"]}/cancel')

    assert (run['state'], known['state'], cancelled.json()['state']) == ('suspended', 'failed', 'failed')
