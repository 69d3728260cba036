"""Events of runs of other processes, read from the store."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server._lifespan import recover
from pydantic_deep.server.routes import _turns
from pydantic_deep.store import (
    Commit,
    Committed,
    RunEnd,
    RunRecord,
    SqlStore,
    StoreUnavailableError,
    new_id,
    open_engine,
    open_store,
)
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import TurnStream, VersionedAgent
from tests.server.conftest import Client, Gate, MakeClient, Serve, Served, frames_in, said, told

pytestmark = pytest.mark.anyio

ALL = {'function_calls': 'true', 'tool_results': 'true'}


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """List files, hold, and answer; or raise on the prompt `fail`."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    prompts = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    if prompts == ['fail']:
        raise RuntimeError('secret of the inside')
    if prompts:
        return ['Looking. ', call('ls', path='/')]
    return ['Waiting. ', call('hold')] if 'held' not in str(messages) and 'hold' not in str(messages) else 'Done.'


class FullStore(SqlStore):
    """A store that can be full, and then refuses the ends of runs."""

    is_full = False

    async def commit(self, commit: Commit) -> Committed:
        if self.is_full and commit.ends:
            raise StoreUnavailableError('The disk is full.')
        return await super().commit(commit)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[FullStore]:
    async with FullStore(await open_engine(f'sqlite:///{tmp_path}/a.db')) as store:
        yield store


@pytest.fixture
async def other(tmp_path: Path, store: SqlStore) -> AsyncGenerator[SqlStore]:
    """The same store, opened by another process."""
    async with open_store(f'sqlite:///{tmp_path}/a.db') as store:
        yield store


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    return {'analyst': create_deep_agent(ScriptedModel(then=answer), tools=[gate.hold], name='analyst')}


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run')


async def begin(client: Client, agent: str = 'analyst') -> str:
    return (await client.post('/api/conversations', json={'agent': agent})).headers['location']


STOPPED_REQUESTS: list[tuple[str, str, dict[str, Any] | None, str]] = [
    ('GET', '/api/runs/{}/events', None, '"type":"text","text":"Waiting. "'),
    ('GET', '/v1/responses/resp_{}?stream=true', None, 'The stream ended before it was complete.'),
    (
        'POST',
        '/mcp',
        {'method': 'tools/call', 'params': {'name': 'get_run', 'arguments': {'run': '{}'}}},
        'The run continues. Wait for it with `get_run`.',
    ),
    (
        'POST',
        '/a2a/analyst',
        {'method': 'SubscribeToTask', 'params': {'id': '{}'}},
        'This server is stopping. The task is not affected: subscribe to it again.',
    ),
]
"""Requests that follow a run of another process: the method, the path, the call, and part of the response when the
server stops."""


async def test_server_that_stops_follows_no_run_of_another_process(
    ada: Client, served: Served, agents: Mapping[str, Any], other: SqlStore, gate: Gate
):
    """Its responses end although the run works on, and have no end of the run."""
    path = await begin(ada)
    theirs = await VersionedAgent(agents['analyst'], other).load((await ada.get(path)).json()['head'])
    stream = theirs.advance_stream('go', moves_head=True)
    ends: list[str] = []

    async def ask(method: str, path: str, body: dict[str, Any] | None) -> None:
        content = None if body is None else json.dumps({'jsonrpc': '2.0', 'id': 1, **body})
        headers = {'accept': 'application/json, text/event-stream', 'content-type': 'application/json'}
        headers |= {'a2a-version': '1.0', 'mcp-protocol-version': '2025-06-18'}
        run_id = stream.run_id or ''
        content = None if content is None else content.replace('{}', run_id)
        ends.append((await ada.request(method, path.format(run_id), content=content, headers=headers)).text)

    async with anyio.create_task_group() as group:
        group.start_soon(drain, stream)
        await gate.reached.wait()
        async with anyio.create_task_group() as asking:
            for method, address, body, _ in STOPPED_REQUESTS:
                asking.start_soon(ask, method, address, body)
            await served.state.runs.stop()
        for method, address, body, _ in STOPPED_REQUESTS:  # that come too late too
            await ask(method, address, body)
        gate.opened.set()

    for _, _, _, end in STOPPED_REQUESTS:
        assert [end in received for received in ends].count(True) == 2, end
    assert not any('event: end' in received or 'response.completed' in received for received in ends)


async def test_run_of_another_process_is_streamed_and_blocks_changes(
    ada: Client, agents: Mapping[str, Any], other: SqlStore, gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    """004-12: SSE streaming with tool calls, auditing, multi-model schemes, as one experience."""
    monkeypatch.setattr(_turns, 'POLL_SECONDS', 0)
    path = await begin(ada)
    head = (await ada.get(path)).json()['head']
    theirs = await VersionedAgent(agents['analyst'], other).load(head)
    stream = theirs.advance_stream('go', moves_head=True)

    async with anyio.create_task_group() as group:
        group.start_soon(drain, stream)
        await gate.reached.wait()
        run_id = stream.run_id
        working = (await ada.get(f'/api/runs/{run_id}')).json()
        refused = [
            await ada.post(f'{path}/turns', json={'prompt': 'x'}),
            await ada.put(f'{path}/uploads/a', content=b'x'),
            await ada.delete(path),
        ]
        beside = await ada.get('/api/runs', params={'conversation': path.rpartition('/')[2]})
        running = (await ada.get(path)).json()['running']

        async def open_gate() -> None:
            await anyio.lowlevel.checkpoint()
            gate.opened.set()

        group.start_soon(open_gate)
        whole = frames_in((await ada.get(f'/api/runs/{run_id}/events', params=ALL)).content)

        assert (working['state'], working['is_here'], working['attempts']) == ('running', False, 1)
        assert working['version_id'] is not None
        assert [each.status_code for each in refused] == [409] * 3
        assert refused[0].json()['error']['run_id'] == running[0] == run_id
        assert [each['id'] for each in beside.json()['items']] == [run_id]
        assert said(whole) == 'Looking. Waiting. Done.'
        assert told(whole)[-1][1]['status'] == 'complete'
        numbers = [int((frame.id or '').split('.')[2]) for frame in whole]
        assert numbers == sorted(set(numbers))
        ended = (await ada.get(f'/api/runs/{run_id}')).json()
        assert (ended['state'], ended['output'], ended['base_id']) == ('complete', 'Done.', head)
        assert (await ada.post(f'/api/runs/{run_id}/cancel')).json() == ended
        assert (await ada.get(path)).json()['head'] == ended['version_id']


async def test_failed_run_of_another_process_exposes_only_the_error_type(
    ada: Client, served: Served, caplog: pytest.LogCaptureFixture
):
    """004-32: Partial JSON or HTTP errors are relayed as SSE (`event: error`)."""
    path = await begin(ada)
    run = (await ada.post(f'{path}/turns', json={'prompt': 'fail'})).json()
    served.state.runs.clear_logs()

    stored = (await ada.get(f'/api/runs/{run["id"]}')).json()
    events = told(frames_in((await ada.get(f'/api/runs/{run["id"]}/events')).content))

    assert (stored['state'], stored['error']['kind']) == ('failed', 'run_failed')
    assert 'RuntimeError' in stored['error']['message']
    assert 'secret' not in str((stored, events))
    assert [event for event, _ in events][-2:] == ['error', 'end']


async def test_stored_cancelled_run_reports_its_cancellation(ada: Client, served: Served, gate: Gate):
    path = await begin(ada)
    run = (await ada.post(f'{path}/turns', json={'prompt': 'go'}, params={'wait': 'false'})).json()
    await gate.reached.wait()
    await ada.post(f'/api/runs/{run["id"]}/cancel')
    served.state.runs.clear_logs()

    stored = (await ada.get(f'/api/runs/{run["id"]}')).json()

    assert (stored['state'], stored['error']['kind']) == ('interrupted', 'cancelled')


async def test_stored_pending_run_streams_its_approvals(serve: Serve):
    """C24: Results hidden by default; approvals always visible (`event: approval_required`), stream ends, resume by
    `deferred_tool_results`."""
    agent = create_deep_agent(ScriptedModel(call('ls', path='/'), 'Done.'), interrupt_on={'ls': True})
    async with serve(agents={'analyst': agent}) as served:
        ada = served.client(await served.key('run', 'approve'))
        path = await begin(ada)
        run = (await ada.post(f'{path}/turns', json={'prompt': 'go'})).json()
        [approval] = run['approvals']
        answers = {approval['pending_id']: {'decision': 'approve', 'digest': approval['view']['digest']}}
        after = (await ada.post(f'{path}/resume', json={'answers': answers})).json()
        live = [frames_in((await ada.get(f'/api/runs/{r["id"]}/events', params=ALL)).content) for r in (run, after)]
        served.state.runs.clear_logs()

        stored = [frames_in((await ada.get(f'/api/runs/{r["id"]}/events', params=ALL)).content) for r in (run, after)]
        shape = (await ada.get(f'/api/runs/{run["id"]}')).json()
        await ada.aclose()

    assert dict(told(stored[0]))['approval_required'] == dict(told(live[0]))['approval_required']
    assert [fields for event, fields in told(stored[1]) if event == 'tool_result'] == [
        fields for event, fields in told(live[1]) if event == 'tool_result'
    ]
    assert shape['approvals'][0]['id'] == run['approvals'][0]['id']


async def _summarize(messages: Sequence[ModelMessage]) -> str:
    return 'What was before.'


async def test_stored_run_streams_messages_replaced_by_a_summary(serve: Serve):
    model = ScriptedModel(*[[f'Step {number}. ', call('ls', path='/')] for number in range(8)], 'Done.')
    summarization = Summarization(trigger=Messages(5), keep=Messages(2), summarizer=_summarize)
    async with serve(
        agents={'analyst': create_deep_agent(model, summarization=False, capabilities=[summarization])}
    ) as served:
        ada = served.client(await served.key())
        path = await begin(ada)
        run = (await ada.post(f'{path}/turns', json={'prompt': 'go'})).json()
        live = frames_in((await ada.get(f'/api/runs/{run["id"]}/events', params=ALL)).content)
        served.state.runs.clear_logs()

        stored = frames_in((await ada.get(f'/api/runs/{run["id"]}/events', params=ALL)).content)
        version = (await ada.get(f'/api/versions/{run["version_id"]}')).json()
        await ada.aclose()

    assert len([fields for event, fields in told(live) if event == 'status']) > 0
    assert version['message_count'] < 17
    assert said(stored) == said(live) == ''.join(f'Step {number}. ' for number in range(8)) + 'Done.'
    ids = [[fields['id'] for event, fields in told(each) if event == 'function_call'] for each in (live, stored)]
    assert ids[0] == ids[1]


async def test_agent_without_deps_is_served_without_files(serve: Serve):
    agent = Agent(ScriptedModel('Hello.', 'Again.'), output_type=str)
    async with serve(agents={'plain': agent}) as served:
        ada = served.client(await served.key())
        path = await begin(ada, 'plain')

        upload = await ada.put(f'{path}/uploads/a', content=b'x')
        run = (await ada.post(f'{path}/turns', json={'prompt': 'go', 'max_iterations': 3})).json()

        assert upload.status_code == 409
        assert (run['state'], run['output']) == ('complete', 'Hello.')
        assert (await ada.get(f'/api/versions/{run["version_id"]}/files')).json() == {'items': []}
        await ada.aclose()


async def test_prompt_with_media_is_shown_as_text(ada: Client, served: Served, gate: Gate):
    gate.opened.set()
    path = await begin(ada)
    head = (await ada.get(path)).json()['head']
    root = await served.state.agents['analyst'].load(head)

    version = await root.advance(['Look at', BinaryContent(b'\x89PNG', media_type='image/png'), 'this'])

    assert (await ada.get(f'/api/versions/{version.id}')).json()['prompt'] == 'Look at\n[media]\nthis'
    assert (await ada.get(f'/api/runs/{version.run_id}')).json()['is_here'] is False


async def drain(stream: TurnStream[Any, Any]) -> None:
    async with stream:
        async for _ in stream.events():
            pass


class CrashingStore(SqlStore):
    """A store of a process that crashes when its second step is committed."""

    steps = 0

    async def commit(self, commit: Commit) -> Committed:
        self.steps += sum(version.kind == 'step' for version in commit.versions)
        if self.steps > 1 or commit.ends:
            raise StoreUnavailableError('The process is dead.')
        return await super().commit(commit)


async def test_crashed_run_is_recovered_at_startup_under_its_id(
    serve: Serve, agents: Mapping[str, Any], tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    """004-12: SSE streaming with tool calls, auditing, multi-model schemes, as one experience."""
    monkeypatch.setattr(_turns, 'POLL_SECONDS', 0)
    async with serve() as served, served.client(await served.key()) as ada:
        path = await begin(ada)
        head = (await ada.get(path)).json()['head']
    async with CrashingStore(await open_engine(f'sqlite:///{tmp_path}/a.db')) as crashing:
        left = (await VersionedAgent(agents['analyst'], crashing).load(head)).advance_stream('go', moves_head=True)
        with pytest.raises(StoreUnavailableError):
            await drain(left)

    async with serve() as served, served.client(await served.key()) as ada:
        await gate.reached.wait()
        [second] = (await ada.get(path)).json()['running']
        working = (await ada.get(f'/api/runs/{left.run_id}')).json()
        busy = await ada.post(f'{path}/turns', json={'prompt': 'x'})
        gate.opened.set()
        whole = frames_in((await ada.get(f'/api/runs/{left.run_id}/events')).content)
        ended = [(await ada.get(f'/api/runs/{id}')).json() for id in (left.run_id, second)]
        beside = await ada.post(f'{path}/turns', json={'prompt': 'x', 'from_version': head})

        assert second != left.run_id
        assert (working['state'], working['attempts'], working['base_id']) == ('running', 2, head)
        assert (busy.status_code, busy.json()['error']['run_id']) == (409, second)
        assert said(whole) == 'Looking. Waiting. Done.'
        assert ended[0] == {**ended[1], 'id': left.run_id}
        assert (ended[0]['state'], ended[0]['attempts']) == ('complete', 2)
        assert (await ada.get(path)).json()['head'] == ended[0]['version_id']
        assert beside.status_code == 200


async def test_run_with_an_unwritten_end_is_suspended_and_resumed_at_startup(
    serve: Serve, store: FullStore, gate: Gate
):
    gate.opened.set()
    async with serve() as served, served.client(await served.key('run')) as ada:
        path = await begin(ada)
        store.is_full = True
        lost = (await ada.post(f'{path}/turns?wait=true', json={'prompt': 'go'})).json()
        store.is_full = False
        here = await ada.get(path)
        served.state.runs.clear_logs()

        stored = (await ada.get(f'/api/runs/{lost["id"]}')).json()
        frames = told(frames_in((await ada.get(f'/api/runs/{lost["id"]}/events')).content))

        assert here.json()['running'] == (await ada.get(path)).json()['running'] == []
        assert (lost['state'], stored['state'], stored['is_here']) == ('suspended', 'suspended', False)
        assert stored['error']['message'].startswith('The store did not take the end of the run')
        assert (frames[-1][0], frames[-1][1]['status']) == ('end', 'suspended')
        await recover(served.state)
        resumed = (await ada.get(f'/api/runs/{lost["id"]}')).json()
        assert (resumed['state'], resumed['attempts']) == ('complete', 2)
        assert (await ada.delete(path)).status_code == 204


async def test_run_that_crashed_before_its_first_step_is_streamed(
    ada: Client, agents: Mapping[str, Any], other: SqlStore, gate: Gate
):
    path = await begin(ada)
    head = (await ada.get(path)).json()['head']
    gate.opened.set()
    await ada.post(f'{path}/turns', json={'prompt': 'x'})
    base = await other.version(head)
    run = RunRecord(
        id=new_id(), conversation_id=base.conversation_id, base_id=head, agent_name='analyst', attempt_of=None,
        parent_run_id=None, state='running', owner=None, prompt=b'"go"', options='{}', usage='{}', cost=None, error=None,
        trace_id=None, started_at=base.created_at, ended_at=None,
    )  # fmt: skip
    await other.commit(Commit(runs=[run]))
    working = (await ada.get(f'/api/runs/{run.id}')).json()
    busy = await ada.post(f'{path}/turns', json={'prompt': 'x', 'from_version': head})
    beside = await ada.post(f'{path}/turns', json={'prompt': 'x'})

    await other.commit(Commit(ends=[RunEnd(run_id=run.id, state='failed')]))
    failed = told(frames_in((await ada.get(f'/api/runs/{run.id}/events')).content))
    free = await ada.post(f'{path}/turns', json={'prompt': 'x', 'from_version': head})

    assert (working['state'], working['version_id'], working['output']) == ('running', None, None)
    assert (busy.status_code, beside.status_code) == (409, 200)
    assert [event for event, _ in failed] == ['start', 'end']
    assert (failed[-1][1]['status'], failed[-1][1]['version_id']) == ('failed', None)
    assert free.status_code == 200
