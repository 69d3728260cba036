"""Turns over HTTP: streamed or as one response, at most one per version, with limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from pydantic_ai import UsageLimits
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import DeepAgentDeps, PlanMode, create_deep_agent
from pydantic_deep.server import ServerSettings
from pydantic_deep.streaming import current_session_id
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel, call
from tests.server.conftest import Client, Gate, MakeClient, Serve, Served, frames_in, said, told

pytestmark = pytest.mark.anyio

STREAM = {'accept': 'text/event-stream'}


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Perform the action that the last prompt names, once."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    said = [part.content for part in last.parts if isinstance(part, UserPromptPart)]
    if not said:
        return 'Done.'
    match str(said[-1]).split():
        case ['hold']:
            return call('hold')
        case ['write', path]:
            return ['Writing. ', call('write_file', path=path, content='x\n')]
        case ['fail']:
            raise RuntimeError('secret of the inside')
        case ['who']:
            return call('who')
        case ['delegate']:
            return call('task', subagent='scout', description='who')
        case words:
            return f'You said: {" ".join(words)}'


async def who() -> str:
    """Return the session id of the run."""
    return f'session {current_session_id()}'


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    model = ScriptedModel(then=answer)
    scout = Subagent(name='scout', description='Looks around.', instructions='Look.', tools=[who])
    return {
        'analyst': create_deep_agent(model, tools=[gate.hold, who], subagents=[scout]),
        'careful': create_deep_agent(model, interrupt_on={'write_file': True}),
    }


async def begin(client: Client, agent: str = 'analyst') -> str:
    return (await client.post('/api/conversations', json={'agent': agent})).headers['location']


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run', 'approve')


async def test_streamed_turn_equals_the_whole_response(ada: Client):
    """004-12: SSE streaming with tool calls, auditing, multi-model schemes, as one experience."""
    path = await begin(ada)

    whole = await ada.post(f'{path}/turns', json={'prompt': 'one'})
    streamed = await ada.post(f'{path}/turns', json={'prompt': 'one'}, headers=STREAM)

    assert (whole.status_code, streamed.status_code) == (200, 200)
    run = whole.json()
    assert (run['state'], run['output'], run['is_here'], run['error']) == ('complete', 'You said: one', True, None)
    assert run['usage']['requests'] == 1
    frames = frames_in(streamed.content)
    assert said(frames) == run['output']
    events = told(frames)
    assert [events[0][0], events[-1][0]] == ['start', 'end']
    assert events[-1][1]['output'] == run['output']
    head = (await ada.get(path)).json()
    assert head['head'] == events[-1][1]['version_id']
    assert (await ada.get(f'/api/versions/{head["head"]}')).json()['parent_id'] == run['version_id']


async def test_stream_is_not_cached_and_has_numbered_events(ada: Client):
    path = await begin(ada)

    response = await ada.post(f'{path}/turns', json={'prompt': 'one two three'}, headers=STREAM)

    assert response.headers['content-type'].startswith('text/event-stream')
    assert response.headers['cache-control'] == 'no-store'
    assert response.headers['x-accel-buffering'] == 'no'
    run_id = response.headers['x-run-id']
    assert response.headers['location'] == f'/api/runs/{run_id}'
    ids = [(frame.id or '').split('.') for frame in frames_in(response.content)]
    assert {(id[0], id[1]) for id in ids} == {(run_id, ids[0][1])}
    numbers = [int(id[2]) for id in ids]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 1


async def test_tool_calls_and_results_are_streamed_on_request(ada: Client):
    """004-14: Detects and collects tool-call deltas. 004-15: Optionally emits `event: function_call`. 004-22: results
    appended to messages, not shown to the user by default."""
    path = await begin(ada)
    body = {'prompt': 'write /a.txt'}

    plain = told(frames_in((await ada.post(f'{path}/turns', json=body, headers=STREAM)).content))
    asked = {'function_calls': 'true', 'tool_results': 'true'}
    full = told(frames_in((await ada.post(f'{path}/turns', json=body, headers=STREAM, params=asked)).content))

    assert 'function_call' not in dict(plain)
    assert 'tool_result' not in dict(plain)
    assert dict(plain)['file'] == {'path': '/a.txt', 'change': 'created', 'added_lines': 1, 'removed_lines': 0}
    assert dict(plain)['notice']['text']
    assert dict(full)['function_call']['name'] == 'write_file'
    assert dict(full)['tool_result']['outcome'] == 'success'


async def test_turn_without_waiting_returns_202_and_continues(ada: Client, gate: Gate):
    path = await begin(ada)

    begun = await ada.post(f'{path}/turns', json={'prompt': 'hold'}, params={'wait': 'false'})

    assert begun.status_code == 202
    run = begun.json()
    assert (run['state'], run['prompt'], run['ended_at']) == ('running', 'hold', None)
    await gate.reached.wait()
    assert (await ada.get(path)).json()['running'] == [run['id']]
    working = (await ada.get(begun.headers['location'])).json()
    assert working['version_id'] is not None
    gate.opened.set()
    frames = frames_in((await ada.get(f'{begun.headers["location"]}/events')).content)
    assert said(frames) == 'Done.'
    ended = (await ada.get(begun.headers['location'])).json()
    assert (ended['state'], ended['prompt'], ended['output']) == ('complete', 'hold', 'Done.')
    assert (await ada.get(path)).json()['running'] == []


async def test_version_accepts_one_turn_at_a_time(ada: Client, gate: Gate):
    path = await begin(ada)
    root = (await ada.get(path)).json()['head']
    first = (await ada.post(f'{path}/turns', json={'prompt': 'one'})).json()['version_id']
    run = (await ada.post(f'{path}/turns', json={'prompt': 'hold'}, params={'wait': 'false'})).json()

    refused = await ada.post(f'{path}/turns', json={'prompt': 'two'})
    beside = await ada.post(f'{path}/turns', json={'prompt': 'two', 'from_version': root})

    assert refused.status_code == 409
    assert refused.json()['error']['run_id'] == run['id']
    assert beside.json()['output'] == 'You said: two'
    assert (await ada.get(path)).json()['head'] == first
    gate.opened.set()
    await ada.get(f'/api/runs/{run["id"]}/events')
    assert (await ada.get(path)).json()['head'] == (await ada.get(f'/api/runs/{run["id"]}')).json()['version_id']


async def test_head_moved_during_a_turn_is_reported_as_a_conflict(ada: Client, gate: Gate):
    """C4: Commit is compare-and-set on head: loser gets `VersionConflictError(head, yours)`. Nothing is lost either
    way."""
    path = await begin(ada)
    root = (await ada.get(path)).json()['head']
    first = (await ada.post(f'{path}/turns', json={'prompt': 'one'})).json()['version_id']
    run = (await ada.post(f'{path}/turns', json={'prompt': 'hold'}, params={'wait': 'false'})).json()
    await gate.reached.wait()

    moved = await ada.post(f'{path}/head', json={'version': root})
    gate.opened.set()
    frames = frames_in((await ada.get(f'/api/runs/{run["id"]}/events')).content)

    assert moved.json()['is_head']
    conflicts = [fields for event, fields in told(frames) if event == 'status' and fields['kind'] == 'conflict']
    assert len(conflicts) == 1
    assert (await ada.get(path)).json()['head'] == root
    kept = told(frames)[-1][1]['version_id']
    assert (await ada.get(f'/api/versions/{kept}')).json()['parent_id'] == first


async def test_failed_run_exposes_no_internal_details(ada: Client):
    """004-32: Partial JSON or HTTP errors are relayed as SSE (`event: error`)."""
    path = await begin(ada)
    head = (await ada.get(path)).json()['head']

    run = (await ada.post(f'{path}/turns', json={'prompt': 'fail'})).json()
    events = told(frames_in((await ada.get(f'/api/runs/{run["id"]}/events')).content))

    assert (run['state'], run['error']['kind'], run['output']) == ('failed', 'run_failed', None)
    assert run['prompt'] == 'fail'
    assert 'secret' not in str((run, events))
    assert [event for event, _ in events][-2:] == ['error', 'end']
    assert events[-1][1]['status'] == 'failed'
    assert (await ada.get(path)).json()['head'] == head


async def test_iterations_are_limited_by_the_turn_and_the_server(serve: Serve, settings: ServerSettings):
    """004-19: At most `max_iterations` LLM calls."""
    bounded = settings.model_copy(update={'max_iterations': 2})
    async with serve(settings=bounded) as served, served.client(await served.key()) as ada:
        path = await begin(ada)
        for _ in range(2):  # the limit applies to each turn, not to the conversation
            whole = await ada.post(f'{path}/turns', json={'prompt': 'write /a.txt', 'max_iterations': 1000})
            assert whole.json()['state'] == 'complete'

        cut = (await ada.post(f'{path}/turns', json={'prompt': 'write /b.txt', 'max_iterations': 1})).json()

        assert (cut['state'], cut['error']['kind']) == ('failed', 'limit_exceeded')
        assert cut['usage']['requests'] == 1


async def test_usage_limits_of_the_deps_apply_to_a_turn(serve: Serve):
    def make_deps() -> DeepAgentDeps:
        return DeepAgentDeps(usage_limits=UsageLimits(tool_calls_limit=0))

    async with serve(make_deps=make_deps) as served, served.client(await served.key()) as ada:
        path = await begin(ada)

        run = (await ada.post(f'{path}/turns', json={'prompt': 'write /a.txt', 'max_iterations': 9})).json()

        assert (run['state'], run['error']['kind']) == ('failed', 'limit_exceeded')


async def test_session_id_reaches_tools_of_subagents(ada: Client):
    """004-33: `session_id` and context propagate through recursion and overrides."""
    path = await begin(ada)
    body = {'prompt': 'delegate', 'session_id': 'mine-1'}

    response = await ada.post(f'{path}/turns', json=body, headers=STREAM, params={'tool_results': 'true'})

    events = told(frames_in(response.content))
    assert events[0][1]['session_id'] == 'mine-1'
    results = [fields for event, fields in events if event == 'tool_result' and fields['name'] == 'who']
    assert [(result['content'], result['path']) for result in results] == [('session mine-1', ['scout'])]
    other = await ada.post(f'{path}/turns', json={'prompt': 'who'}, headers=STREAM, params={'tool_results': 'true'})
    assert 'session None' in other.text


async def test_model_settings_are_limited_to_allowed_names(ada: Client, agents: Mapping[str, Any]):
    path = await begin(ada)

    done = await ada.post(f'{path}/turns', json={'prompt': 'a', 'model_settings': {'temperature': 0, 'max_tokens': 5}})
    refused = await ada.post(f'{path}/turns', json={'prompt': 'a', 'model_settings': {'extra_headers': {'a': 'b'}}})

    assert (done.status_code, refused.status_code) == (200, 422)
    model = agents['analyst'].model
    assert isinstance(model, ScriptedModel)
    settings = model.requests[-1].settings
    assert settings is not None
    assert {name: settings.get(name) for name in ('temperature', 'max_tokens')} == {'temperature': 0, 'max_tokens': 5}


async def test_cancelled_run_preserves_completed_steps(ada: Client, gate: Gate):
    path = await begin(ada)
    run = (await ada.post(f'{path}/turns', json={'prompt': 'hold'}, params={'wait': 'false'})).json()
    await gate.reached.wait()

    cancelled = (await ada.post(f'/api/runs/{run["id"]}/cancel')).json()

    assert (cancelled['state'], cancelled['error']['kind']) == ('interrupted', 'cancelled')
    assert (await ada.get(path)).json()['head'] == cancelled['version_id']
    assert (await ada.post(f'/api/runs/{run["id"]}/cancel')).json() == cancelled
    assert (await ada.post(f'{path}/turns', json={'prompt': 'go on'})).json()['output'] == 'You said: go on'


async def test_branch_starts_at_any_version_with_a_unique_name(ada: Client):
    path = await begin(ada)
    root = (await ada.get(path)).json()['head']
    head = (await ada.post(f'{path}/turns', json={'prompt': 'one'})).json()['version_id']

    branch = await ada.post(f'/api/versions/{root}/branch', json={'prompt': 'two', 'branch': 'other'})
    again = await ada.post(f'/api/versions/{root}/branch', json={'prompt': 'three', 'branch': 'other'})

    version = (await ada.get(f'/api/versions/{branch.json()["version_id"]}')).json()
    assert (version['branch'], version['parent_id'], version['prompt']) == ('other', root, 'two')
    assert again.status_code == 409
    assert (await ada.get(path)).json()['head'] == head


async def test_runs_are_listed_newest_first(ada: Client, make_client: MakeClient):
    path, other = await begin(ada), await begin(ada)
    ids = [(await ada.post(f'{each}/turns', json={'prompt': 'x'})).json()['id'] for each in (path, other, path)]

    of_one = (await ada.get('/api/runs', params={'conversation': path.rpartition('/')[2]})).json()['items']
    of_all = (await ada.get('/api/runs')).json()['items']

    assert [run['id'] for run in of_one] == [ids[2], ids[0]]
    assert [run['id'] for run in of_all] == ids[::-1]
    bob = await make_client('run', owner='bob')
    assert (await bob.get('/api/runs')).json()['items'] == []


async def test_runs_above_the_limits_of_key_and_server_are_refused(serve: Serve, settings: ServerSettings, gate: Gate):
    few = settings.model_copy(update={'max_runs_per_key': 1, 'max_runs': 2})
    async with serve(settings=few) as served:
        clients = [served.client(await served.key(owner=owner)) for owner in ('ada', 'bob', 'eve')]
        answers: list[httpx.Response] = []
        for client in [clients[0], *clients]:
            path = await begin(client)
            answers.append(await client.post(f'{path}/turns', json={'prompt': 'hold'}, params={'wait': 'false'}))
        gate.opened.set()

        assert [answer.status_code for answer in answers] == [202, 429, 202, 429]
        assert {answer.headers.get('retry-after') for answer in answers} == {None, '5'}
        assert ['of this key' in answers[1].text, 'of this server' in answers[3].text] == [True, True]
        for client in clients:
            await client.aclose()


async def test_stopping_server_refuses_turns_and_completes_active_ones(serve: Serve, gate: Gate):
    async with serve() as served:
        ada = served.client(await served.key())
        path = await begin(ada)
        run = (await ada.post(f'{path}/turns', json={'prompt': 'hold'}, params={'wait': 'false'})).json()
        await gate.reached.wait()
        here = served.state.runs.get(run['id'])
        assert here is not None

        served.state.runs.close()
        refused = await ada.post(f'{await begin(ada)}/turns', json={'prompt': 'x'})
        gate.opened.set()

        assert (refused.status_code, refused.headers['retry-after']) == (503, '5')
        await ada.aclose()
    assert (here.state, here.output) == ('complete', 'Done.')


async def test_turn_is_interrupted_at_the_shutdown_timeout(serve: Serve, settings: ServerSettings, gate: Gate):
    async with serve(settings=settings.model_copy(update={'shutdown_seconds': 0})) as served:
        ada = served.client(await served.key())
        path = await begin(ada)
        run = (await ada.post(f'{path}/turns', json={'prompt': 'hold'}, params={'wait': 'false'})).json()
        await gate.reached.wait()
        await ada.aclose()

    stored = await served.store.run(run['id'])
    assert stored is not None
    assert stored.state == 'interrupted'


async def test_missing_and_foreign_resources_have_the_same_response(ada: Client, make_client: MakeClient):
    """004-09: Authentication/authorization flows."""
    path = await begin(ada)
    run = (await ada.post(f'{path}/turns', json={'prompt': 'x'})).json()
    bob = await make_client('run', 'approve', owner='bob')
    nothing = '00000000-0000-7000-8000-000000000000'

    for theirs, none in (
        (path, f'/api/conversations/{nothing}'),
        (f'{path}/versions', f'/api/conversations/{nothing}/versions'),
        (f'/api/runs/{run["id"]}', f'/api/runs/{nothing}'),
        (f'/api/runs/{run["id"]}/events', '/api/runs/x/events'),
        (f'/api/versions/{run["version_id"]}', f'/api/versions/{run["version_id"][:8]}'),
    ):
        refused, missing = await bob.get(theirs), await bob.get(none)
        assert (refused.status_code, refused.content) == (missing.status_code, missing.content)
        assert refused.status_code == 404
    assert (await bob.post(f'{path}/turns', json={'prompt': 'x'})).status_code == 404
    assert (await bob.post(f'/api/runs/{run["id"]}/cancel')).status_code == 404


async def test_pending_version_refuses_a_prompt(ada: Client):
    path = await begin(ada, 'careful')
    pause = (await ada.post(f'{path}/turns', json={'prompt': 'write /a.txt'})).json()

    refused = await ada.post(f'{path}/turns', json={'prompt': 'x'})

    assert pause['state'] == 'awaiting_approval'
    assert refused.status_code == 409
    assert refused.json()['error']['pending'] == [each['pending_id'] for each in pause['approvals']]


async def test_pool_counts_runs_and_log_bytes(served: Served, ada: Client):
    path = await begin(ada)
    await ada.post(f'{path}/turns', json={'prompt': 'x'})
    runs = served.state.runs

    assert runs.running_count == 0
    assert 0 < runs.log_memory_bytes == runs.log_bytes < 10_000


async def test_plan_mode_is_switched_by_a_turn(serve: Serve) -> None:
    """A turn switches plan mode on and off: the file is written only by the turn that is not in plan mode."""
    write = call('write_file', path='x', content='x')
    model = ScriptedModel(write, 'planning', write, 'written')
    agent = create_deep_agent(model, interrupt_on={}, capabilities=[PlanMode(starts_on=False)])
    async with serve(agents={'planner': agent}) as served, served.client(await served.key('run')) as ada:
        path = await begin(ada, 'planner')
        await ada.post(f'{path}/turns', json={'prompt': 'a', 'plan_mode': True})
        await ada.post(f'{path}/turns', json={'prompt': 'b', 'plan_mode': False})
        log = (await ada.get(f'{path}/versions')).json()['items']
    results = [str(request.messages[-1]) for request in model.requests[1::2]]
    assert ['Plan mode is on' in result for result in results] == [True, False]
    assert {version['prompt'] for version in log} >= {'a', 'b'}


async def test_plan_mode_of_an_agent_without_it_is_refused(ada: Client) -> None:
    """The request is refused instead of running without a plan."""
    response = await ada.post(f'{await begin(ada)}/turns', json={'prompt': 'a', 'plan_mode': True})
    assert response.status_code == 422
    assert "The agent 'analyst' has no plan mode" in response.text
