"""Doors without workers: runs that other processes execute are streamed, listed, cancelled and resumed on every door."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
import pytest
from httpx import Response
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.dispatch import DispatcherUnavailableError, InProcessDispatcher, submit
from pydantic_deep.dispatch._queued_turn import describe_problem
from pydantic_deep.server import AnyAgent, ServerSettings, _dispatcher, _run_start
from pydantic_deep.server._lifespan import events_of_ended
from pydantic_deep.server._turn_task import load_task
from pydantic_deep.server.routes import _turns
from pydantic_deep.server.runs import _mirrors
from pydantic_deep.server.runs._event_stream import RESET, log_frames
from pydantic_deep.server.runs._pool import RunPool
from pydantic_deep.server.runs._run_log import RunLog
from pydantic_deep.server.runs._server_run import ServerRun, queued_state
from pydantic_deep.store import (
    Commit,
    QueuedRunRecord,
    RunQueue,
    SqlStore,
    StoreUnavailableError,
    new_id,
    now,
    open_store,
)
from pydantic_deep.streaming import EndEvent, EventGroup, Frame, StartEvent, StreamEvent, encode_entry, frame_of
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import TurnOptions, VersionedAgent
from tests.dispatch.conftest import until
from tests.server.conftest import Client, Gate, Serve, Served, frames_in
from tests.server.mcp.conftest import over_http
from tests.server.test_lifespan import running, store_orphan

pytestmark = pytest.mark.anyio

DOOR = ServerSettings(requests_per_second=1000, request_burst=100_000, worker=False, max_runs_per_key=2)
WORKER = ServerSettings(requests_per_second=1000, request_burst=100_000)


def _answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Wait in a tool at the prompt `wait`, ask for approval at `ask`, and answer otherwise."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    prompt = next((part.content for part in last.parts if isinstance(part, UserPromptPart)), None)
    if prompt == 'wait':
        return call('hold')
    if prompt == 'ask':
        return call('write_file', path='/a.txt', content='x')
    return f'You said: {prompt}'


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    """An agent whose tool `hold` waits for the gate, and whose writes need an approval."""
    tools = FunctionToolset[Any]()
    tools.add_function(gate.hold, metadata={'effect': 'read'})
    agent = create_deep_agent(ScriptedModel(then=_answer), toolsets=[tools], interrupt_on={'write_file': True})
    return {'analyst': agent}


@dataclass(kw_only=True)
class Fleet:
    """Two doors and a worker, each with a store of its own on one database."""

    doors: list[Served]
    first: Client
    second: Client
    worker: Callable[[], AbstractAsyncContextManager[Served]]

    async def begin(self, prompt: str = 'Hello') -> tuple[str, str]:
        """Create a conversation and queue a turn at the first door; return both ids."""
        created = await self.first.post('/api/conversations', json={'agent': 'analyst'})
        conversation = created.json()['id']
        turn = await self.first.post(f'/api/conversations/{conversation}/turns?wait=false', json={'prompt': prompt})
        assert turn.status_code == 202, turn.text
        return conversation, turn.json()['id']

    async def state(self, run: str) -> str:
        """Return the state of a run at the second door."""
        return (await self.second.get(f'/api/runs/{run}')).json()['state']

    async def end(self, run: str) -> list[Frame]:
        """Return all events of a run, as the second door streams them until its end."""
        response = await self.second.get(f'/api/runs/{run}/events?function_calls=true&tool_results=true')
        return frames_in(response.content)


@pytest.fixture
async def fleet(serve: Serve) -> AsyncGenerator[Fleet]:
    """Two doors without workers."""
    name = new_id()
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(f'memory:{name}')) for _ in range(3)]
        doors = [await stack.enter_async_context(serve(settings=DOOR, store=store)) for store in stores[:2]]
        key = await doors[0].key('run', 'approve')
        first, second = [await stack.enter_async_context(door.client(key)) for door in doors]
        yield Fleet(doors=doors, first=first, second=second, worker=partial(serve, settings=WORKER, store=stores[2]))


def _data(frames: list[Frame]) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in frames if frame.event not in ('usage', None)]


async def test_stopped_door_follows_no_run(fleet: Fleet) -> None:
    """A stream that was open ends, and so does one that is opened too late. The run waits for a worker as before."""
    _, run = await fleet.begin()
    pool = fleet.doors[1].state.runs
    streams: list[list[Frame]] = []

    async def read(run: str) -> None:
        streams.append(await fleet.end(run))

    async with anyio.create_task_group() as group:
        group.start_soon(read, run)
        await until(lambda: pool.get(run) is not None)
        await pool.stop()
    _, late = await fleet.begin()
    await read(late)
    assert [_data(frames) for frames in streams] == [[], []]
    assert [await fleet.state(each) for each in (run, late)] == ['queued', 'queued']


async def test_run_waits_for_a_worker_and_both_doors_stream_the_same_events(fleet: Fleet) -> None:
    """The ids of the events are the same on every door, so that a client can go on at any of them."""
    _, run = await fleet.begin()
    assert await fleet.state(run) == 'queued'

    async with fleet.worker():
        second = await fleet.end(run)
        response = await fleet.first.get(f'/api/runs/{run}/events?function_calls=true&tool_results=true')
    first = frames_in(response.content)

    assert [frame.id for frame in first] == [frame.id for frame in second]
    assert _data(first) == _data(second)
    assert _data(first)[-1]['output'] == 'You said: Hello'
    assert await fleet.state(run) == 'complete'
    rest = await fleet.first.get(f'/api/runs/{run}/events', headers={'last-event-id': first[0].id or ''})
    assert frames_in(rest.content)[-1].data == first[-1].data
    none = await fleet.first.get(f'/api/runs/{run}/events', headers={'last-event-id': first[-1].id or ''})
    assert none.status_code == 204


async def test_door_whose_mirror_lags_knows_what_another_door_has_seen(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that saw the end of a run at one door finds it ended at every other, and may change the conversation."""
    conversation, run = await fleet.begin()
    assert await fleet.state(run) == 'queued'  # mirrored by the second door, too
    _lag(fleet.doors[1], monkeypatch)
    async with fleet.worker():
        await fleet.first.get(f'/api/runs/{run}/events')

        shown = (await fleet.second.get(f'/api/runs/{run}')).json()
        assert (shown['state'], shown['output']) == ('complete', 'You said: Hello')
        details = (await fleet.second.get(f'/api/conversations/{conversation}')).json()
        assert details['running'] == []
        deleted = await fleet.second.delete(f'/api/conversations/{conversation}')
        assert deleted.status_code == 204, deleted.text


def _lag(door: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the mirrors of a door notice nothing from now on."""
    queue = door.state.runs.queue
    assert queue is not None

    async def no_news(run_ids: list[str]) -> list[Any]:
        await anyio.sleep_forever()
        return []

    monkeypatch.setattr(queue, 'progress', no_news)


async def test_turn_begins_at_any_door_from_the_base_of_a_run_that_has_ended(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that saw the end at one door can begin another turn from the same version at every other door at once, and
    only an active run prevents it.
    """
    conversation, run = await fleet.begin()
    versions = await fleet.first.get(f'/api/conversations/{conversation}/versions')
    [root] = [version['id'] for version in versions.json()['items']]
    branch = {'prompt': 'Again', 'branch': 'second'}
    assert await fleet.state(run) == 'queued'
    _lag(fleet.doors[1], monkeypatch)
    early = await fleet.second.post(f'/api/versions/{root}/branch?wait=false', json=branch)
    async with fleet.worker():
        await fleet.first.get(f'/api/runs/{run}/events')
        started = await fleet.second.post(f'/api/versions/{root}/branch?wait=false', json=branch)
        assert started.status_code == 202, started.text
        await fleet.first.get(f'/api/runs/{started.json()["id"]}/events')

    assert (early.status_code, run in early.text) == (409, True)


async def test_run_that_has_ended_is_cancelled_without_effect_at_a_door_whose_mirror_lags(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The door answers with the end, and does not wait for a worker that has nothing left to do."""
    _, run = await fleet.begin()
    assert await fleet.state(run) == 'queued'
    _lag(fleet.doors[1], monkeypatch)
    async with fleet.worker():
        await fleet.first.get(f'/api/runs/{run}/events')
        cancelled = await fleet.second.post(f'/api/runs/{run}/cancel')

    assert (cancelled.status_code, cancelled.json()['state']) == (200, 'complete')


async def test_run_that_was_cancelled_before_it_began_has_ended_at_a_door_whose_mirror_lags(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation, run = await fleet.begin()
    assert await fleet.state(run) == 'queued'
    _lag(fleet.doors[1], monkeypatch)

    await fleet.first.post(f'/api/runs/{run}/cancel')

    assert await fleet.state(run) == 'interrupted'
    assert (await fleet.second.get(f'/api/conversations/{conversation}')).json()['running'] == []
    turn = {'prompt': 'Again'}
    started = await fleet.second.post(f'/api/conversations/{conversation}/turns?wait=false', json=turn)
    assert started.status_code == 202, started.text


async def test_response_that_runs_is_not_queued_at_a_door_whose_mirror_lags(
    fleet: Fleet, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response that is in progress at one door is not queued at another."""
    asked = {'model': 'analyst', 'input': 'wait', 'background': True}
    path = f'/v1/responses/{(await fleet.first.post("/v1/responses", json=asked)).json()["id"]}'
    assert (await fleet.second.get(path)).json()['status'] == 'queued'
    _lag(fleet.doors[1], monkeypatch)
    async with fleet.worker():
        await gate.reached.wait()
        shown = (await fleet.second.get(path)).json()['status']
        gate.opened.set()

    assert shown == 'in_progress'


async def test_server_that_executes_its_runs_knows_those_that_a_door_has_queued(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers with and without workers share a store: one run at a time continues a version, wherever it was begun."""
    monkeypatch.setattr('pydantic_deep.dispatch._worker.POLL_SECONDS', 3600)  # it looks once, before there is a run
    async with fleet.worker() as worker, worker.client(await worker.key('run', 'approve')) as third:
        conversation, run = await fleet.begin()
        refused = await third.post(f'/api/conversations/{conversation}/turns?wait=false', json={'prompt': 'Second'})

    assert (refused.status_code, run in refused.text) == (409, True)


async def test_server_that_executes_its_runs_shows_the_queued_run_that_resumes_a_task(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of A2A that was answered at a door works at every server, before a worker has begun its next run."""
    conversation, run = await fleet.begin('ask')
    async with fleet.worker():
        await fleet.end(run)
    shown = (await fleet.first.get(f'/api/runs/{run}')).json()['approvals'][0]
    answer = {'answers': {shown['pending_id']: {'decision': 'approve', 'digest': shown['view']['digest']}}}

    async def none_ready(agent_names: Collection[str], **options: Any) -> list[QueuedRunRecord]:
        return []

    monkeypatch.setattr(RunQueue, 'ready', none_ready)
    async with fleet.worker() as third:
        resumed = await fleet.first.post(f'/api/conversations/{conversation}/resume?wait=false', json=answer)
        task = await load_task(await third.access(await third.key('run')), run, agent='analyst')

    assert (task.run.id, task.run.state) == (resumed.json()['id'], 'queued')


async def test_repeated_decision_joins_the_run_that_it_resumed_at_another_door(fleet: Fleet) -> None:
    """A load balancer may send the repetition of a request of a chat to any door."""
    asked: dict[str, Any] = {'model': 'analyst', 'messages': [{'role': 'user', 'content': 'ask'}]}
    async with fleet.worker():
        paused = await fleet.first.post('/v1/chat/completions', json=asked)
        said = paused.json()['choices'][0]['message']
        result = {'role': 'tool', 'tool_call_id': said['tool_calls'][0]['id'], 'content': 'approve'}
        asked['messages'] += [said, result]
        answers = [await door.post('/v1/chat/completions', json=asked) for door in (fleet.first, fleet.second)]

    assert [each.status_code for each in answers] == [200, 200], [each.text for each in answers]
    contents = [each.json()['choices'][0]['message']['content'] for each in answers]
    assert contents[0] == contents[1]
    assert len(await fleet.doors[0].store.queue.list(ended=True)) == 2


async def test_conversation_with_a_run_that_another_door_has_queued_is_not_deleted(fleet: Fleet) -> None:
    """A run that waits for a worker protects its conversation at every door."""
    conversation, run = await fleet.begin()

    refused = await fleet.second.delete(f'/api/conversations/{conversation}')

    assert refused.status_code == 409
    assert run in refused.text


async def test_waiting_client_gets_the_result(fleet: Fleet) -> None:
    """A request that waits returns when the worker has ended the run."""
    created = await fleet.first.post('/api/conversations', json={'agent': 'analyst'})
    async with fleet.worker():
        turn = await fleet.first.post(f'/api/conversations/{created.json()["id"]}/turns', json={'prompt': 'Hi'})

    assert turn.status_code == 200
    assert turn.json()['output'] == 'You said: Hi'
    assert turn.json()['usage']['requests'] == 1
    assert not turn.json()['is_here']


async def test_run_is_listed_with_its_node_on_every_door(fleet: Fleet, gate: Gate) -> None:
    """Runs of all processes are listed, with the process that executes them and its last report."""
    conversation, run = await fleet.begin('wait')
    (queued,) = (await fleet.second.get('/api/runs')).json()['items']
    assert (await fleet.second.get(f'/api/runs?conversation={conversation}')).json()['items'] == [queued]
    async with fleet.worker():
        await gate.reached.wait()
        (running,) = (await fleet.second.get('/api/runs')).json()['items']
        gate.opened.set()
        await fleet.end(run)
    (ended,) = (await fleet.second.get('/api/runs')).json()['items']

    assert (queued['id'], queued['state'], queued['node']) == (run, 'queued', None)
    assert (running['state'], ended['state']) == ('running', 'complete')
    assert [each['prompt'] for each in (queued, running, ended)] == ['wait'] * 3
    assert running['node'].endswith(f':{os.getpid()}')
    assert running['heartbeat_at'] is not None


async def test_run_says_why_it_stays_queued(fleet: Fleet) -> None:
    """The reason is in the run on every door, without the message of an unexpected error."""
    conversation, run = await fleet.begin()
    queue = fleet.doors[0].store.queue
    assert (await fleet.first.get(f'/api/runs/{run}')).json()['problem'] is None
    await queue.claim(run)
    await queue.release(run, problem=describe_problem(OSError(28, 'No space left on device', '/srv/secret')))

    for client in (fleet.first, fleet.second):
        stays = (await client.get(f'/api/runs/{run}')).json()
        assert (stays['state'], stays['problem']) == (
            'queued',
            'The run failed with OSError. The log of the application has the details.',
        )
        assert (await client.get(f'/api/runs?conversation={conversation}')).json()['items'] == [stays]
    async with over_http(fleet.doors[1], 'run') as tools:
        found = await tools.call_tool('get_run', {'run': run, 'wait_seconds': 0})
        assert found.structured_content is not None
        assert found.structured_content['error'] == stays['problem']
    async with fleet.worker():
        await fleet.end(run)
    assert (await fleet.second.get(f'/api/runs/{run}')).json()['problem'] is None


async def test_run_that_could_not_begin_has_failed_even_if_its_events_are_lost(fleet: Fleet) -> None:
    """The store was unavailable when the worker wrote the events."""
    _, run = await fleet.begin()
    queue = fleet.doors[0].store.queue
    await queue.claim(run)
    await queue.end(run, problem=describe_problem(OSError(28, 'No space left on device', '/srv/secret')))

    _, error, end = _data(await fleet.end(run))

    assert error['message'] == 'The run failed with OSError. The log of the application has the details.'
    assert (end['status'], await fleet.state(run)) == ('failed', 'failed')


async def test_queued_run_is_found_in_its_conversation_on_every_door(fleet: Fleet) -> None:
    """A client that lost the answer of its request must not begin the turn twice: after a restart, or at another process,
    it finds the run that waits for a worker, over HTTP and with `log` of MCP."""
    conversation, run = await fleet.begin()
    for door, client in zip(fleet.doors, (fleet.first, fleet.second), strict=True):
        assert (await client.get(f'/api/conversations/{conversation}')).json()['running'] == [run]
        async with over_http(door, 'run') as tools:
            logged = await tools.call_tool('log', {'conversation': conversation})
            assert logged.structured_content is not None
            assert logged.structured_content['active_runs'] == [run]
    async with fleet.worker():
        await fleet.end(run)
    assert (await fleet.second.get(f'/api/conversations/{conversation}')).json()['running'] == []


async def test_queued_run_is_cancelled_on_another_door(fleet: Fleet) -> None:
    """A run that no worker has begun ends at once, and is never executed."""
    conversation, run = await fleet.begin()

    cancelled = await fleet.second.post(f'/api/runs/{run}/cancel')
    async with fleet.worker():
        frames = await fleet.end(run)

    assert cancelled.json()['state'] == 'interrupted'
    assert [data['type'] for data in _data(frames)] == ['start', 'error', 'end']
    versions = await fleet.first.get(f'/api/conversations/{conversation}/versions')
    assert [version['kind'] for version in versions.json()['items']] == ['root']


async def test_running_run_is_cancelled_on_another_door(fleet: Fleet, gate: Gate) -> None:
    """The worker reads the request, and commits the completed work."""
    _, run = await fleet.begin('wait')
    async with fleet.worker():
        await gate.reached.wait()
        cancelled = await fleet.second.post(f'/api/runs/{run}/cancel')
        frames = await fleet.end(run)

    assert cancelled.json()['state'] == 'interrupted'
    assert cancelled.json()['version_id'] is not None
    assert _data(frames)[-1]['status'] == 'interrupted'


async def test_approval_is_answered_on_another_door(fleet: Fleet) -> None:
    """The turn pauses on the worker, and resumes there with the answer of the second door."""
    conversation, run = await fleet.begin('ask')
    async with fleet.worker():
        paused = await fleet.end(run)
        shown = (await fleet.second.get(f'/api/runs/{run}')).json()['approvals'][0]
        answer = {shown['pending_id']: {'decision': 'approve', 'digest': shown['view']['digest']}}
        resumed = await fleet.second.post(f'/api/conversations/{conversation}/resume', json={'answers': answer})

    assert _data(paused)[-1]['status'] == 'awaiting_approval'
    assert resumed.json()['state'] == 'complete', resumed.text


async def test_version_with_a_queued_run_is_busy_on_every_door(fleet: Fleet) -> None:
    """Two doors do not queue two turns from one version."""
    conversation, run = await fleet.begin()

    for client in (fleet.first, fleet.second):
        refused = await client.post(f'/api/conversations/{conversation}/turns', json={'prompt': 'Again'})
        assert refused.status_code == 409
        assert refused.json()['error']['run_id'] == run


async def test_only_one_of_two_simultaneous_turns_from_a_version_starts(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both doors find the version free before either has queued its turn."""
    created = await fleet.first.post('/api/conversations', json={'agent': 'analyst'})
    read, arrived, both = _run_start.active_queued_runs, list[str](), anyio.Event()

    async def read_together(store: SqlStore, conversation_id: str) -> list[QueuedRunRecord]:
        found = await read(store, conversation_id)
        arrived.append(conversation_id)
        if len(arrived) == 2:
            both.set()
        await both.wait()
        return found

    monkeypatch.setattr(_run_start, 'active_queued_runs', read_together)
    answers: list[Response] = []

    async def post(client: Client) -> None:
        turn = {'prompt': 'Hello'}
        answers.append(await client.post(f'/api/conversations/{created.json()["id"]}/turns?wait=false', json=turn))

    async with anyio.create_task_group() as group:
        group.start_soon(post, fleet.first)
        group.start_soon(post, fleet.second)

    accepted, refused = sorted(answers, key=lambda answer: answer.status_code)
    assert (accepted.status_code, refused.status_code) == (202, 409)
    assert refused.json()['error'] == {
        'type': 'conflict',
        'message': f'The run {accepted.json()["id"]} is active. Wait for it, cancel it, or start from another version.',
        'run_id': accepted.json()['id'],
    }


async def test_limit_of_a_key_counts_the_runs_of_all_doors(fleet: Fleet) -> None:
    """The limit is two runs: the third is refused with 429, at any door."""
    for _ in range(2):
        await fleet.begin()
    created = await fleet.second.post('/api/conversations', json={'agent': 'analyst'})
    refused = await fleet.second.post(f'/api/conversations/{created.json()["id"]}/turns', json={'prompt': 'Third'})

    assert refused.status_code == 429
    assert '2 runs of this key' in refused.json()['error']['message']


async def test_run_of_another_owner_is_not_found(fleet: Fleet) -> None:
    """A queued run answers 404 to other owners, as everything else does."""
    _, run = await fleet.begin()
    async with fleet.doors[1].client(await fleet.doors[1].key('run', owner='bob')) as bob:
        for path in (f'/api/runs/{run}', f'/api/runs/{run}/events'):
            assert (await bob.get(path)).status_code == 404
        assert (await bob.post(f'/api/runs/{run}/cancel')).status_code == 404
        assert (await bob.get('/api/runs')).json()['items'] == []


async def test_reader_gets_a_reset_when_another_process_continues_the_run() -> None:
    """The response goes on with the events of the new log, after a reset if the client has read some."""
    old, new = RunLog(epoch='a1'), RunLog(epoch='a2')
    old.append(encode_entry(StartEvent(id='r')))
    chunks: list[bytes] = []
    async with aclosing(log_frames(old, 'r', 0, partial(frame_of, groups=EventGroup(0)), 60)) as frames:
        chunks.append(await anext(frames))
        old.successor = new
        old.discard()
        new.append(encode_entry(StartEvent(id='r')))
        new.close()
        chunks += [chunk async for chunk in frames]

    assert chunks[0].startswith(b'id: r.a1.1\n')
    assert chunks[1] == RESET
    assert chunks[2].startswith(b'id: r.a2.1\n')
    new.discard()


async def test_replaced_log_that_nobody_read_needs_no_reset() -> None:
    """A queued run has an empty log until a worker begins it."""
    old, new = RunLog(epoch='a0'), RunLog(epoch='a1')
    old.successor = new
    old.discard()
    new.append(encode_entry(StartEvent(id='r')))
    new.close()

    chunks = [chunk async for chunk in log_frames(old, 'r', 0, partial(frame_of, groups=EventGroup(0)), 60)]

    assert [chunk.partition(b'\n')[0] for chunk in chunks] == [b'id: r.a1.1']
    new.discard()


class _Queue:
    """A queue that is unavailable twice, and then knows no run."""

    def __init__(self) -> None:
        self.asked = 0

    async def progress(self, ids: list[str]) -> list[Any]:
        self.asked += 1
        if self.asked <= 2:
            raise StoreUnavailableError('The server restarts.')
        return []


def _record(**values: Any) -> QueuedRunRecord:
    record = QueuedRunRecord(
        run_id=new_id(), conversation_id=new_id(), base_id=None, agent_name='analyst', account='ada', key_id=None,
        priority=0, prompt=None, options='{}', submitted_at=now(),
    )  # fmt: skip
    return record._replace(**values)


async def test_mirror_waits_for_an_unavailable_store_and_ends_with_stored_events(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that the queue does not know any more has its events from the store. The outage is logged once."""
    monkeypatch.setattr(_mirrors, 'RETRY_SECONDS', 0)
    monkeypatch.setattr(_mirrors, 'POLL_SECONDS', 0)
    ended = anyio.Event()

    async def load(run_id: str) -> list[StreamEvent]:
        return [StartEvent(id=run_id), EndEvent(status='complete')]

    queue = _Queue()
    mirrors = _mirrors.RunMirrors(cast('Any', queue), memory_bytes=1000, load_events=load)
    mirrors.on_end = lambda _: ended.set()
    record = _record(state='ended')
    run = mirrors.add(record)
    assert mirrors.add(record) is run
    async with anyio.create_task_group() as group:
        group.start_soon(mirrors.run)
        await ended.wait()
        group.cancel_scope.cancel()

    assert (run.state, len(run.log), mirrors.runs) == ('complete', 2, [])
    assert caplog.text.count('The server waits for its store') == 1
    run.log.discard()


async def test_ended_run_that_never_began_is_failed_or_interrupted() -> None:
    assert queued_state(_record(state='ended')) == 'failed'
    assert queued_state(_record(state='ended', cancelled_at=1)) == 'interrupted'


async def test_pool_without_a_queue_follows_no_other_process(settings: ServerSettings) -> None:
    async with RunPool(settings) as pool:
        assert await pool.follow(new_id()) is None


async def test_unknown_run_is_not_followed(fleet: Fleet) -> None:
    assert await fleet.doors[0].state.runs.follow(new_id()) is None


async def test_cancellation_without_a_worker_is_stored_and_answers_503(
    fleet: Fleet, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that a worker has begun ends when a worker takes it over, without being executed."""
    monkeypatch.setattr(_turns, 'CANCEL_SECONDS', 0.1)
    monkeypatch.setattr('pydantic_deep.dispatch._worker.CANCEL_SECONDS', 3600)  # the worker does not notice the request
    _, run = await fleet.begin('wait')
    async with fleet.worker() as worker:
        await gate.reached.wait()
        refused = await fleet.second.post(f'/api/runs/{run}/cancel')
        queued = await worker.store.queue.get(run)
        gate.opened.set()

    assert refused.status_code == 503
    assert 'The request to cancel run' in refused.json()['error']['message']
    assert queued is not None
    assert queued.cancelled_at is not None


async def test_mirror_waits_for_a_store_that_becomes_unavailable_while_it_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_mirrors, 'RETRY_SECONDS', 0)
    monkeypatch.setattr(_mirrors, 'POLL_SECONDS', 0)
    ended = anyio.Event()
    loads: list[str] = []

    async def load(run_id: str) -> list[StreamEvent]:
        loads.append(run_id)
        if len(loads) == 1:
            raise StoreUnavailableError('The server restarts.')
        return [StartEvent(id=run_id), EndEvent(status='complete')]

    queue = _Queue()
    queue.asked = 2
    mirrors = _mirrors.RunMirrors(cast('Any', queue), memory_bytes=1000, load_events=load)
    mirrors.on_end = lambda _: ended.set()
    run = mirrors.add(_record(state='ended'))
    async with anyio.create_task_group() as group:
        group.start_soon(mirrors.run)
        await ended.wait()
        group.cancel_scope.cancel()

    assert (loads, run.state, len(run.log)) == ([run.id] * 2, 'complete', 2)
    run.log.discard()


async def test_mirror_added_while_the_store_answers_is_asked_for_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a new run would seem to have been removed from the queue."""
    monkeypatch.setattr(_mirrors, 'POLL_SECONDS', 0)
    late, both = _record(), anyio.Event()
    runs, asked, loaded_at = list[ServerRun](), list[list[str]](), dict[str, int]()

    class Queue:
        async def progress(self, ids: list[str]) -> list[Any]:
            asked.append(ids)
            runs.append(mirrors.add(late))
            return []

    async def load(run_id: str) -> list[StreamEvent]:
        loaded_at[run_id] = len(asked)
        if len(loaded_at) == 2:
            both.set()
        return [StartEvent(id=run_id), EndEvent(status='complete')]

    mirrors = _mirrors.RunMirrors(cast('Any', Queue()), memory_bytes=1000, load_events=load)
    runs.append(mirrors.add(_record()))
    async with anyio.create_task_group() as group:
        group.start_soon(mirrors.run)
        await both.wait()
        group.cancel_scope.cancel()

    assert loaded_at == {runs[0].id: 1, late.run_id: 2}
    assert asked[:2] == [[runs[0].id], [late.run_id]]
    mirrors.clear()
    for run in runs:
        run.log.discard()


async def test_damaged_log_ends_its_mirror_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other mirrors go on, and clients that wait for the run are released."""
    ended: list[str] = []
    both = anyio.Event()

    async def load(run_id: str) -> list[StreamEvent]:
        if run_id == damaged.id:
            raise ValueError('damaged')
        return [StartEvent(id=run_id), EndEvent(status='complete')]

    def end(run: ServerRun) -> None:
        ended.append(run.id)
        if len(ended) == 2:
            both.set()

    queue = _Queue()
    queue.asked = 2
    mirrors = _mirrors.RunMirrors(cast('Any', queue), memory_bytes=1000, load_events=load)
    mirrors.on_end = end
    damaged, intact = mirrors.add(_record(state='ended')), mirrors.add(_record(state='ended'))
    async with anyio.create_task_group() as group:
        group.start_soon(mirrors.run)
        await both.wait()
        group.cancel_scope.cancel()

    assert ended == [damaged.id, intact.id]
    assert damaged.caught_up.is_set()
    assert (damaged.outcome, intact.outcome) == (None, 'complete')
    damaged.log.discard()
    intact.log.discard()


async def test_server_with_a_dispatcher_queues_its_runs(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher of the settings delivers the runs to the worker of the same server."""
    opened: list[str] = []

    @asynccontextmanager
    async def open_in_process(url: str) -> AsyncGenerator[InProcessDispatcher]:
        opened.append(url)
        yield InProcessDispatcher()

    monkeypatch.setattr(_dispatcher, 'open_dispatcher', open_in_process)
    settings = ServerSettings(requests_per_second=1000, request_burst=100_000, dispatcher='temporal://x:1/default')
    async with serve(settings=settings) as served, served.client(await served.key()) as client:
        created = await client.post('/api/conversations', json={'agent': 'analyst'})
        turn = await client.post(f'/api/conversations/{created.json()["id"]}/turns', json={'prompt': 'Hi'})
        events = await events_of_ended(served.state, turn.json()['id'])

    assert opened == ['temporal://x:1/default']
    assert turn.json()['output'] == 'You said: Hi'
    end = events[-1]
    assert isinstance(end, EndEvent)
    assert (end.status, end.output, end.version_id) == ('complete', 'You said: Hi', turn.json()['version_id'])


async def test_server_with_a_dispatcher_continues_its_runs_with_their_events_after_a_crash(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker continues them, and writes their events, so that clients of all servers can read them as they occur."""

    @asynccontextmanager
    async def open_in_process(url: str) -> AsyncGenerator[InProcessDispatcher]:
        yield InProcessDispatcher()

    monkeypatch.setattr(_dispatcher, 'open_dispatcher', open_in_process)
    monkeypatch.setattr('pydantic_deep.dispatch._worker.CONFIRM_SECONDS', 0)
    settings = ServerSettings(requests_per_second=1000, request_burst=100_000, dispatcher='temporal://x:1/default')
    async with open_store(f'memory:{new_id()}') as store:
        async with open_store(store.url) as crashed:
            agent = VersionedAgent(create_deep_agent(ScriptedModel(), name='analyst'), crashed)
            root = await agent.create(metadata={'server.owner': 'ada'})
            run = await submit(root, TurnOptions(prompt='Hello'), crashed)
            await crashed.commit(Commit(runs=[running(root.record)._replace(id=run.run_id)]))
            assert await crashed.queue.claim(run.run_id) is not None
        async with serve(settings=settings, store=store) as served, served.client(await served.key()) as client:
            events = frames_in((await client.get(f'/api/runs/{run.run_id}/events')).content)
        known = await store.queue.get(run.run_id)
    assert known is not None
    assert (events[-1].event, known.state, known.epoch) == ('end', 'ended', 2)
    assert known.position > 0


async def test_other_versions_of_the_conversation_are_not_busy(fleet: Fleet) -> None:
    """A queued turn from the head does not prevent a turn from an earlier version."""
    created = (await fleet.first.post('/api/conversations', json={'agent': 'analyst'})).json()
    turns = f'/api/conversations/{created["id"]}/turns'
    async with fleet.worker():
        await fleet.first.post(turns, json={'prompt': 'Hi'})
    root = (await fleet.first.get(f'/api/conversations/{created["id"]}/versions')).json()['items'][-1]['id']
    queued = await fleet.first.post(f'{turns}?wait=false', json={'prompt': 'Again'})
    other = await fleet.first.post(f'{turns}?wait=false', json={'prompt': 'Other', 'from_version': root})

    assert (queued.status_code, other.status_code) == (202, 202)


@pytest.mark.parametrize('is_up', [True, False])
async def test_cancellation_withdraws_the_run_from_the_dispatcher(
    settings: ServerSettings, store: SqlStore, *, is_up: bool
) -> None:
    """The store has the request in any case: a dispatcher that is down does not matter."""
    withdrawn: list[str] = []

    class Dispatcher(InProcessDispatcher):
        async def cancel(self, run_id: str, *, conversation_id: str) -> None:
            if not is_up:
                raise DispatcherUnavailableError('The engine', 'It is down.')
            withdrawn.append(run_id)

    async def load(run_id: str) -> list[StreamEvent]:
        return [StartEvent(id=run_id), EndEvent(status='interrupted')]

    record = _record()
    await store.queue.add(record)
    mirrors = _mirrors.RunMirrors(store.queue, memory_bytes=1000, load_events=load)
    async with RunPool(settings, mirrors=mirrors, dispatcher=Dispatcher()) as pool:
        await pool.request_cancel(mirrors.add(record))
    known = await store.queue.get(record.run_id)

    assert withdrawn == ([record.run_id] if is_up else [])
    assert known is not None
    assert known.state == 'ended'


@pytest.mark.parametrize('is_streamed', [False, True])
async def test_clients_of_other_apis_get_the_answer_of_a_worker(fleet: Fleet, is_streamed: bool) -> None:
    """The log of a queued run is replaced when a worker claims it, and the client of a door reads the new one."""
    asked = {'model': 'analyst', 'messages': [{'role': 'user', 'content': 'Hi'}], 'stream': is_streamed}
    async with fleet.worker():
        response = await fleet.first.post('/v1/chat/completions', json=asked)

    assert response.status_code == 200
    assert 'Hi' in response.text
    assert '"finish_reason":"stop"' in response.text


async def test_a_response_is_queued_until_a_worker_takes_it(fleet: Fleet) -> None:
    """Any door has the response and its input; a stream of it counts the same events everywhere."""
    asked = {'model': 'analyst', 'input': 'Hi', 'background': True}
    made = (await fleet.first.post('/v1/responses', json=asked)).json()
    path = f'/v1/responses/{made["id"]}'
    queued = (await fleet.second.get(path)).json()
    items = (await fleet.second.get(f'{path}/input_items')).json()
    assert (made['status'], queued['status'], queued['output']) == ('queued', 'queued', [])
    assert items['data'][0]['content'] == [{'type': 'input_text', 'text': 'Hi'}]

    async with fleet.worker():
        streams = [
            frames_in((await door.get(path, params={'stream': True})).content) for door in (fleet.first, fleet.second)
        ]
    rest = frames_in((await fleet.second.get(path, params={'stream': True, 'starting_after': 2})).content)

    assert [frame.event for frame in streams[0]][:3] == ['response.created', 'response.queued', 'response.in_progress']
    assert [frame.event for frame in streams[0]] == [frame.event for frame in streams[1]]
    assert streams[0][3:-1] == streams[1][3:-1]
    assert rest == streams[1][3:]
    done = (await fleet.second.get(path)).json()
    assert (done['status'], done['output'][0]['content'][0]['text']) == ('completed', 'You said: Hi')


async def test_a_queued_response_that_is_cancelled_has_nothing_to_continue(fleet: Fleet) -> None:
    """It ends without a version, is cancelled at every door, and can be deleted."""
    made = (
        await fleet.first.post('/v1/responses', json={'model': 'analyst', 'input': 'Hi', 'background': True})
    ).json()
    path = f'/v1/responses/{made["id"]}'
    assert (await fleet.second.post(f'{path}/cancel')).json()['status'] == 'cancelled'
    again = {'model': 'analyst', 'input': 'Two', 'previous_response_id': made['id']}
    refused = await fleet.first.post('/v1/responses', json=again)
    assert refused.status_code == 409
    assert 'ended before its first step' in refused.json()['error']['message']
    assert (await fleet.first.delete(path)).json()['deleted']
    assert (await fleet.second.get(path)).status_code == 404


async def test_suspended_run_that_is_resumed_at_a_door_is_continued_by_a_worker(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A door calls no models and tools: it may not even have their keys."""
    created = (await fleet.first.post('/api/conversations', json={'agent': 'analyst'})).json()
    store = fleet.doors[0].store
    run_id = await store_orphan(store.url, await store.version(created['head']))
    add = store.queue.add

    async def add_twice(run: QueuedRunRecord, **limits: Any) -> None:
        await add(run, **limits)
        await add(run, **limits)

    path = f'/api/runs/{run_id}'
    assert (await fleet.second.get(path)).json()['state'] == 'suspended'
    monkeypatch.setattr(store.queue, 'add', add_twice)  # two requests at the same time
    refused = await fleet.first.post(f'{path}/resume')
    assert (refused.status_code, 'is queued already' in refused.text) == (409, True)
    assert (await fleet.second.get(path)).json()['state'] == 'queued'
    assert (await fleet.second.post(f'{path}/resume')).status_code == 409
    async with fleet.worker():
        streamed = frames_in((await fleet.second.get(f'{path}/events')).content)
    assert streamed[-1].event == 'end'
    done = (await fleet.first.get(path)).json()
    assert (done['state'], done['output']) == ('complete', 'You said: Hello')


async def test_request_beyond_a_limit_leaves_no_conversation_behind(fleet: Fleet, serve: Serve, gate: Gate) -> None:
    """Clients repeat a refused request, at a server that executes runs itself too."""
    body = {'model': 'analyst', 'messages': [{'role': 'user', 'content': 'wait'}]}
    for _ in range(2):  # the limit
        await fleet.begin()
    before = await fleet.doors[0].store.conversations()
    refused = await fleet.second.post('/v1/chat/completions', json=body)
    assert (refused.status_code, await fleet.doors[0].store.conversations()) == (429, before)

    async with serve(settings=WORKER.model_copy(update={'max_runs': 1})) as served, anyio.create_task_group() as group:
        client = served.client(await served.key())
        group.start_soon(partial(client.post, '/v1/chat/completions', json=body))
        await gate.reached.wait()
        refused = await client.post('/v1/chat/completions', json={**body, 'user': 'again'})
        assert (refused.status_code, len(await served.store.conversations())) == (429, 1)
        gate.opened.set()
