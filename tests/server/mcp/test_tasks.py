"""Tasks: the extension `io.modelcontextprotocol/tasks`, as raw JSON-RPC over HTTP and on standard input and output."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from io import BytesIO
from typing import Any, Literal, TypeAlias

import anyio
import anyio.from_thread
import pytest
from dirty_equals import IsOneOf, IsPartialDict, IsStr
from inline_snapshot import snapshot
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent, KeyScope, ServerSettings, _turn_task
from pydantic_deep.server._turn_task import find_first_run
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.mcp import _tasks
from pydantic_deep.server.mcp.stdio import serve_stdio
from pydantic_deep.server.routes import _approvals, _turns
from pydantic_deep.server.schemas._approvals import Answer
from pydantic_deep.store import Commit, StoreUnavailableError, new_id, open_store
from pydantic_deep.testing import Answer as ModelAnswer
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.views import AnsweredApproval, Run
from tests.server.conftest import Gate, MakeClient, Serve, Served
from tests.server.mcp.conftest import UNKNOWN, Connect, result_of
from tests.server.mcp.tasks_client import ACCEPT, FORMS, TASKS, Exchange, TasksClient, accepted, over_http

pytestmark = pytest.mark.anyio

METHODS = ('tasks/get', 'tasks/update', 'tasks/cancel')
DISMISSED = {'action': 'cancel'}

Transport: TypeAlias = Literal['http', 'stdio']
Open: TypeAlias = Callable[[Transport], AbstractAsyncContextManager[TasksClient]]


@pytest.fixture
def fails() -> anyio.Event:
    """Set to let the runs of the agent `broken` fail."""
    return anyio.Event()


@pytest.fixture
def agents(agents: Mapping[str, AnyAgent], fails: anyio.Event) -> Mapping[str, AnyAgent]:
    """The agents of the other tests, and one whose runs fail."""

    async def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelAnswer:
        """Fail like a model that is out of order."""
        await fails.wait()
        raise RuntimeError('out of order')

    return {**agents, 'broken': create_deep_agent(ScriptedModel(then=fail))}


@pytest.fixture
async def client(make_client: MakeClient) -> TasksClient:
    """A client with the scopes `run` and `approve`, which can show forms."""
    return TasksClient(over_http(await make_client('run', 'approve')))


class _Output(BytesIO):
    """A file whose lines a test receives."""

    def __init__(self) -> None:
        super().__init__()
        self.send, self.lines = anyio.create_memory_object_stream[str](100)

    def write(self, data: Any, /) -> int:
        anyio.from_thread.run_sync(self.send.send_nowait, bytes(data).decode())
        return len(data)


@asynccontextmanager
async def over_stdio(agents: Mapping[str, AnyAgent]) -> AsyncGenerator[Exchange]:
    """Serve agents on a pipe, one request after another."""
    read, write = os.pipe()
    output = _Output()

    async def exchange(message: dict[str, Any], /) -> dict[str, Any]:
        os.write(write, json.dumps(message).encode() + b'\n')
        return json.loads(await output.lines.receive())

    async with open_store('memory:') as store, anyio.create_task_group() as group:
        with os.fdopen(read, 'rb') as file, output.send, output.lines:

            async def serve() -> None:
                await serve_stdio(agents, store, ServerSettings(), owner='ada', streams=(file, output))

            async with anyio.create_task_group() as serving:
                serving.start_soon(serve)
                try:
                    yield exchange
                finally:  # otherwise the server would wait for its input, also after an error
                    os.close(write)
        group.cancel_scope.cancel()


@pytest.fixture
def open_client(agents: Mapping[str, AnyAgent], client: TasksClient) -> Open:
    """Return a context manager that opens a client of a transport."""

    @asynccontextmanager
    async def open(transport: Transport) -> AsyncGenerator[TasksClient]:
        if transport == 'http':
            yield client
        else:
            async with over_stdio(agents) as exchange:
                yield TasksClient(exchange)

    return open


async def paused(client: TasksClient, prompt: str = '/a.txt=a') -> tuple[str, dict[str, Any]]:
    """Start a task that pauses, and return its id and its forms."""
    task = (await client.call('run', prompt=prompt, agent='asker'))['taskId']
    found = await client.wait(task)
    assert found['status'] == 'input_required'
    return task, found['inputRequests']


def run_of(result: dict[str, Any]) -> str:
    """Return the id of a run from the result of its call: a task, or the run itself if it has ended by then."""
    return result.get('taskId') or result['structuredContent']['run']


async def files_of(client: TasksClient, task: dict[str, Any]) -> list[str]:
    """Return the paths of the files that a completed task has written."""
    [diff] = (await client.call('diff', version=task['result']['structuredContent']['version']))['content']
    return [file['path'] for file in json.loads(diff['text'])['files']]


# From the call to the result


@pytest.mark.parametrize('transport', ['http', 'stdio'])
async def test_task_works_pauses_for_a_form_and_completes(open_client: Open, transport: Transport) -> None:
    """A call becomes a task, whose forms are those of elicitation, and whose result is that of the call."""
    async with open_client(transport) as client:
        created = await client.call('run', prompt='/a.txt=a', agent='asker')
        assert created == snapshot(
            {
                'resultType': 'task',
                'taskId': IsStr(),
                'status': IsOneOf('working', 'input_required'),
                'createdAt': IsStr(),
                'lastUpdatedAt': IsStr(),
                'ttlMs': None,
                'pollIntervalMs': 1000,
            }
        )
        assert created['createdAt'] <= created['lastUpdatedAt']
        task = created['taskId']
        asked = await client.wait(task)
        [(key, form)] = asked.pop('inputRequests').items()
        assert asked == {**created, 'resultType': 'complete', 'status': 'input_required', 'lastUpdatedAt': IsStr()}
        assert form == snapshot(
            {
                'method': 'elicitation/create',
                'params': {
                    'mode': 'form',
                    'message': """\
The agent asks for permission.

Tool: write_file
Argument path: /a.txt
Argument content:
  | a
Preview (diff):
  | --- /dev/null
  | +++ b/a.txt
  | @@ -0,0 +1 @@
  | +a\
""",
                    'requestedSchema': {
                        'type': 'object',
                        'properties': {
                            'decision': {
                                'type': 'string',
                                'title': 'Decision',
                                'enum': ['approve', 'deny'],
                            },
                            'reason': {
                                'type': 'string',
                                'title': 'Reason',
                                'description': 'The agent receives it if you deny the call.',
                                'maxLength': 10000,
                            },
                        },
                        'required': ['decision'],
                    },
                },
            }
        )
        assert await client.update(task, {key: accepted('approve')}) == {'resultType': 'complete'}
        done = await client.wait(task)
        result = done.pop('result')
        assert done == {**created, 'resultType': 'complete', 'status': 'completed', 'lastUpdatedAt': IsStr()}
        run = result['structuredContent']['run']
        assert result == {'resultType': 'complete', **await client.call('get_run', run=run, wait_seconds=0)}
        assert (result['structuredContent']['output'], run != task) == ('Written.', True)


async def test_task_is_found_right_after_the_call_and_while_it_works(client: TasksClient, gate: Gate) -> None:
    """A task can be asked for as soon as its id is known, any number of times."""
    task = (await client.call('run', prompt='hold', agent='writer'))['taskId']
    assert [(await client.get(task))['status'] for _ in range(3)] == 3 * ['working']
    gate.opened.set()
    assert (await client.wait(task))['status'] == 'completed'


async def test_task_keeps_its_id_over_several_pauses(client: TasksClient, served: Served) -> None:
    """Each pause has a form of its own, and every run of the turn belongs to the same task."""
    task, first = await paused(client, 'twice')
    await client.update(task, {key: accepted('approve') for key in first})
    second = (await client.wait(task))['inputRequests']
    assert first.keys().isdisjoint(second)
    [run] = [item['run'] for item in (await served_runs(client)) if item['run'] != task]
    assert (await client.call('get_run', run=run))['taskId'] == task
    assert await find_first_run(served.state, run) == task
    await client.update(task, {key: accepted('approve') for key in second})
    done = await client.wait(task)
    assert (done['status'], done['createdAt']) == ('completed', (await client.get(task))['createdAt'])
    assert done['createdAt'] < done['lastUpdatedAt']


async def served_runs(client: TasksClient) -> list[dict[str, Any]]:
    """Return the versions of the newest conversation."""
    [content] = (await client.call('log'))['content']
    conversation = json.loads(content['text'])['conversations'][0]['conversation']
    [content] = (await client.call('log', conversation=conversation))['content']
    return [version for version in json.loads(content['text'])['versions'] if 'run' in version]


async def test_tools_that_return_a_run_return_its_task(
    client: TasksClient, make_client: MakeClient, served: Served
) -> None:
    """`get_run` and `resume_run` return the task of the turn, and an ended run as a result. `answer_approval`, whose
    result is another one, waits as ever.
    """
    task, forms = await paused(client, 'twice')
    served.state.runs.clear_logs()  # as in another process
    assert (await client.call('get_run', run=task))['taskId'] == task
    approval, digest = next(iter(forms)).split(':')
    answer = {'approval': approval, 'digest': digest, 'decision': 'approve', 'wait_seconds': 0}
    without_forms = TasksClient(over_http(await make_client('run', 'approve')), TASKS)
    answered = (await without_forms.call('answer_approval', **answer))['structuredContent']
    assert (answered['status'], answered['run']['run'] != task) == ('approved', True)
    forms = (await client.wait(task))['inputRequests']
    await client.update(task, {key: accepted('approve') for key in forms})
    done = await client.wait(task)
    assert (await client.call('get_run', run=task))['structuredContent'] == done['result']['structuredContent']


async def test_person_who_answers_without_resuming_leaves_the_task_at_resume_run(
    client: TasksClient, make_client: MakeClient
) -> None:
    """Answers elsewhere count. `resume_run`, or an update without answers, continues the turn."""
    person = await make_client('approve')
    for resume in ('resume_run', 'tasks/update'):
        task, forms = await paused(client)
        approval, digest = next(iter(forms)).split(':')
        await person.post(f'/api/approvals/{approval}', json={'decision': 'approve', 'digest': digest})
        assert await client.get(task) == IsPartialDict(
            status='input_required',
            inputRequests={},
            statusMessage=snapshot(
                'The approvals are answered. If no other run has resumed the turn, call `resume_run`.'
            ),
        )
        if resume == 'resume_run':
            assert (await client.call(resume, run=task)).get('taskId', task) == task
        else:
            await client.update(task, {})
        assert (await client.wait(task))['status'] == 'completed'


# Answers


async def test_denied_call_does_not_run_and_the_task_completes(client: TasksClient) -> None:
    """Two forms, one denied with a reason: the other call runs, and the model reads the reason."""
    task, forms = await paused(client, '/a.txt=a /b.txt=b')
    first, second = forms
    assert len(await client.update(task, {first: accepted('approve')})) == 1
    assert list((await client.get(task))['inputRequests']) == [second]
    await client.update(task, {second: accepted('deny', reason='Not this one.')})
    assert await files_of(client, await client.wait(task)) == ['/a.txt']


async def test_second_answer_has_no_effect(client: TasksClient) -> None:
    """An answered form is not pending: another answer is acknowledged, and starts no other run."""
    task, forms = await paused(client)
    async with anyio.create_task_group() as group:
        for decision in ('approve', 'deny', 'approve'):
            group.start_soon(client.update, task, {key: accepted(decision) for key in forms})
    await client.update(task, {key: accepted('deny') for key in forms})
    done = await client.wait(task)
    await client.update(task, {key: accepted('deny') for key in forms})
    assert await client.get(task) == done
    assert len({version['run'] for version in await served_runs(client)}) == 2


@pytest.mark.parametrize(
    'response', [DISMISSED, {'action': 'decline'}, {'action': 'accept', 'content': {}}, {'roots': []}]
)
async def test_response_without_a_decision_leaves_the_form_pending(
    client: TasksClient, response: dict[str, Any]
) -> None:
    """A dismissed or empty form, and another kind of response, decide nothing."""
    task, forms = await paused(client)
    await client.update(task, dict.fromkeys(forms, response))
    assert (await client.get(task))['inputRequests'] == forms


async def test_answer_to_another_call_has_no_effect(client: TasksClient) -> None:
    """A stale digest, and the form of another task, are not pending here."""
    task, forms = await paused(client)
    other, others = await paused(client)
    approval, _ = next(iter(forms)).split(':')
    stale = {f'{approval}:{"0" * 64}': accepted('approve')}
    await client.update(task, {**stale, **{key: accepted('approve') for key in others}})
    assert (await client.get(task))['inputRequests'] == forms
    assert (await client.get(other))['inputRequests'] == others


async def test_question_is_answered(client: TasksClient) -> None:
    """A question of the agent is a form with one text."""
    task = (await client.call('run', prompt='Go', agent='curious'))['taskId']
    [key] = (await client.wait(task))['inputRequests']
    await client.update(task, {key: {'action': 'accept', 'content': {'answer': 'rose'}}})
    assert (await client.wait(task))['result']['structuredContent']['output'] == 'rose'


@pytest.mark.parametrize('scopes', [('run', 'approve'), ('run',)])
async def test_client_that_cannot_be_asked_gets_the_pending_calls_as_result(
    served: Served, make_client: MakeClient, scopes: tuple[KeyScope, ...]
) -> None:
    """Without forms or the scope `approve`, a pause completes the task. The run that resumes the turn is another task."""
    capabilities = TASKS if 'approve' in scopes else FORMS
    unasked = TasksClient(over_http(await make_client(*scopes)), capabilities)
    task = run_of(await unasked.call('run', prompt='twice', agent='asker'))
    result = (await unasked.wait(task))['result']
    assert result['structuredContent']['state'] == 'awaiting_approval'
    assert result == await unasked.call('get_run', run=task)
    [shown] = result['structuredContent']['approvals']
    person = await make_client('approve')
    answer = {'decision': 'approve', 'digest': shown['digest']}
    await person.post(f'/api/approvals/{shown["approval"]}', json=answer)
    other = run_of(await unasked.call('resume_run', run=task))
    assert (await unasked.wait(other))['status'] == 'completed'
    assert (await unasked.get(task))['status'] == 'completed'
    assert other != task


async def test_answering_needs_the_scope_approve(client: TasksClient, make_client: MakeClient) -> None:
    """A key without it cannot answer a form that another key was shown."""
    task, forms = await paused(client)
    runner = TasksClient(over_http(await make_client('run')))
    answers = {key: accepted('approve') for key in forms}
    refused = await runner.send('tasks/update', taskId=task, inputResponses=answers)
    assert refused['error'] == snapshot(
        {
            'code': -32602,
            'message': 'Answering approvals requires a key with the scope `approve`.',
        }
    )
    assert (await client.get(task))['inputRequests'] == forms


async def test_update_that_could_not_resume_the_turn_can_be_repeated(
    client: TasksClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of a failed update are stored, and the same request resumes the turn."""

    async def refuse(*arguments: Any) -> None:
        raise ServerError('rate_limited')

    task, forms = await paused(client)
    answers = {key: accepted('approve') for key in forms}
    with monkeypatch.context() as patch:
        patch.setattr(_tasks, 'start_run', refuse)  # too many runs, which a test reaches only with many
        refused = await client.send('tasks/update', taskId=task, inputResponses=answers)
    assert refused['error']['code'] == -32603
    assert (await client.get(task))['inputRequests'] == {}
    await client.update(task, answers)
    assert (await client.wait(task))['status'] == 'completed'


async def test_refused_answer_is_an_error(client: TasksClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the store cannot record the answer, the update fails, and the form is pending."""

    async def refuse(*arguments: Any, **options: Any) -> None:
        raise ServerError('unavailable')

    task, forms = await paused(client)
    with monkeypatch.context() as patch:
        patch.setattr(_approvals, 'answer_approval', refuse)  # an outage, which a store in memory has not
        response = await client.send(
            'tasks/update', taskId=task, inputResponses={key: accepted('approve') for key in forms}
        )
    assert response['error']['code'] == -32603
    assert (await client.get(task))['inputRequests'] == forms


# Other ends


async def test_cancelled_task_is_cancelled(client: TasksClient, gate: Gate) -> None:
    """A task that works is cancelled; one that has ended stays as it is, and one that is paused keeps its forms."""
    working = (await client.call('run', prompt='hold', agent='writer'))['taskId']
    await gate.reached.wait()
    for _ in range(2):
        assert await client.request('tasks/cancel', taskId=working) == {'resultType': 'complete'}
        assert (await client.get(working))['status'] == 'cancelled'
    waiting, forms = await paused(client)
    await client.request('tasks/cancel', taskId=waiting)
    assert (await client.get(waiting))['inputRequests'] == forms


async def test_failed_run_completes_the_task_with_its_error(client: TasksClient, fails: anyio.Event) -> None:
    """The status `failed` is for errors of JSON-RPC. The tool returns a failed run as a result, and so does the task."""
    task = (await client.call('run', prompt='Go', agent='broken'))['taskId']
    fails.set()
    done = await client.wait(task)
    assert (done['status'], done['result']['structuredContent']['state']) == ('completed', 'failed')
    assert done['statusMessage'] == done['result']['structuredContent']['error']


async def test_suspended_run_works_and_says_how_to_end_it(
    client: TasksClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash, a task works again as soon as a server resumes it; `test_kill` has a real crash."""
    task, _ = await paused(client)
    build = _turn_task.build_run

    async def build_suspended(*arguments: Any) -> Run:
        return (await build(*arguments)).model_copy(update={'state': 'suspended'})

    monkeypatch.setattr(_turn_task, 'build_run', build_suspended)
    assert await client.get(task) == IsPartialDict(
        status='working',
        statusMessage=snapshot(
            'The run has no end in the store. Continue it with `resume_run`, or end it with `cancel_run`.'
        ),
    )


async def test_task_completes_if_the_conversation_has_moved_on_without_it(
    client: TasksClient, served: Served, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server resumes such a run by itself, so the task ends with it, and says how to continue or end it."""
    store, commit = served.state.store, served.state.store.commit

    async def refuse_ends(change: Commit) -> None:
        if change.ends:
            raise StoreUnavailableError('The disk is full.')
        await commit(change)

    task = (await client.call('run', prompt='hold', agent='writer'))['taskId']
    await gate.reached.wait()
    with monkeypatch.context() as patch:
        patch.setattr(store, 'commit', refuse_ends)  # an outage, which a store in memory has not
        gate.opened.set()
        while 'statusMessage' not in (found := await client.get(task)):
            await anyio.lowlevel.checkpoint()
        assert found['status'] == 'working'
    working = served.state.runs.get(task)
    if working is not None:
        await working.wait()  # until then, the conversation is busy
    run = (await client.call('get_run', run=task, wait_seconds=0))['structuredContent']
    await client.wait(run_of(await client.call('run', prompt='Hi', conversation=run['conversation'])))
    found = await client.get(task)
    reason = snapshot(
        'The process of the run ended, and the conversation has moved on without it. Continue it with `resume_run`, or end it with `cancel_run`.'
    )
    assert found == IsPartialDict(status='completed', statusMessage=reason)
    assert found['result']['structuredContent'] == IsPartialDict(run=task, state='suspended', next=reason)
    await client.call('resume_run', run=task)
    assert (await client.wait(task))['result']['structuredContent']['state'] == 'complete'


# Who gets tasks


@pytest.mark.parametrize('capabilities', [{}, {'extensions': {}}, {'extensions': {'io.modelcontextprotocol/ui': {}}}])
async def test_only_a_request_that_declares_the_extension_gets_a_task(
    client: TasksClient, make_client: MakeClient, capabilities: dict[str, Any]
) -> None:
    """Each request declares it anew: without it, a call waits as ever, and the methods name what is missing."""
    task, _ = await paused(client)
    plain = TasksClient(over_http(await make_client('run', 'approve')), capabilities)
    assert (await plain.call('run', prompt='Hi', agent='writer'))['structuredContent']['state'] == 'complete'
    for method in METHODS:
        refused = await plain.send(method, taskId=task, inputResponses={})
        assert refused['error'] == snapshot(
            {
                'code': -32021,
                'message': "Client did not declare required extension 'io.modelcontextprotocol/tasks'",
                'data': {'requiredCapabilities': {'extensions': {'io.modelcontextprotocol/tasks': {}}}},
            }
        )


async def test_server_declares_the_extension_to_clients_of_its_protocol(
    client: TasksClient, make_client: MakeClient
) -> None:
    """`server/discover` lists it. Earlier protocols neither see it nor have its methods, which meant something else."""
    assert (await client.request('server/discover'))['capabilities']['extensions'] == TASKS['extensions']
    earlier = await make_client('run')
    params = {
        'protocolVersion': '2025-11-25',
        'capabilities': FORMS['extensions'],
        'clientInfo': {'name': 'x', 'version': '1'},
    }
    for method, given, expected in [
        ('initialize', params, '"capabilities":{"prompts"'),
        ('tasks/get', {'taskId': UNKNOWN}, '"message":"Method not found"'),
    ]:
        message = {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': given}
        answer = (await earlier.post('/mcp', json=message, headers=ACCEPT)).text
        assert expected in answer
        assert 'extensions' not in answer


async def test_call_that_does_not_wait_returns_the_run(client: TasksClient, make_client: MakeClient) -> None:
    """With `wait_seconds` of 0, the result is the run as it is now, for models that look at one."""
    task, _ = await paused(client)
    without_forms = TasksClient(over_http(await make_client('run')), TASKS)
    result = await without_forms.call('get_run', run=task, wait_seconds=0)
    assert result['structuredContent']['state'] == 'awaiting_approval'


async def test_refused_call_is_a_result_and_no_task(client: TasksClient) -> None:
    """A call that starts no run fails as for other clients."""
    for arguments in ({'prompt': 'Hi', 'agent': 'nobody'}, {}):
        assert (await client.call('run', **arguments))['isError']


@pytest.mark.parametrize('options', [{'owner': 'bob'}, {'agents': ['writer']}])
async def test_tasks_of_others_do_not_exist(
    client: TasksClient, make_client: MakeClient, options: dict[str, Any]
) -> None:
    """The task of another owner, or of an agent that the key may not use, is answered as an unknown one, and unchanged."""
    task, forms = await paused(client)
    other = TasksClient(over_http(await make_client('run', 'approve', **options)))
    for method in METHODS:
        for id in (task, UNKNOWN, task[:8], 'x'):
            answers = {key: accepted('approve') for key in forms}
            response = await other.send(method, taskId=id, inputResponses=answers)
            assert response['error'] == snapshot(
                {
                    'code': -32602,
                    'message': 'This resource does not exist, or this key has no access to it.',
                }
            )
        assert (await other.send(method, inputResponses={}))['error']['code'] == -32602
    assert (await client.get(task))['inputRequests'] == forms


async def test_key_without_run_has_no_tasks(client: TasksClient, make_client: MakeClient) -> None:
    """A key that only answers approvals uses `answer_approval` or the page."""
    task, _ = await paused(client)
    approver = TasksClient(over_http(await make_client('approve')))
    for method in METHODS:
        refused = await approver.send(method, taskId=task, inputResponses={})
        assert refused['error'] == snapshot({'code': -32602, 'message': 'This requires a key with the scope `run`.'})


# Several processes


FRONT = ServerSettings(requests_per_second=1000, request_burst=100_000, worker=False)


async def test_task_without_a_worker_is_found_at_any_server(serve: Serve) -> None:
    """A task exists as soon as it is queued: each server with the store finds it, and only for its owner."""
    name = new_id()
    async with (
        open_store(f'memory:{name}') as one,
        open_store(f'memory:{name}') as two,
        serve(settings=FRONT, store=one) as first,
        serve(settings=FRONT, store=two) as second,
        first.client(await first.key()) as here,
        second.client(await first.key()) as there,
    ):
        task = (await TasksClient(over_http(here)).call('run', prompt='Hi', agent='writer'))['taskId']
        found = await TasksClient(over_http(there)).get(task)
        assert (found['taskId'], found['status']) == (task, 'working')


@pytest.mark.slow
async def test_task_of_a_worker_is_answered_and_read_at_any_server(serve: Serve) -> None:
    """A task that one server has queued is answered at another, and queued again; its id remains the first one."""
    name = new_id()
    async with (
        open_store(f'memory:{name}') as one,
        open_store(f'memory:{name}') as two,
        open_store(f'memory:{name}') as three,
        serve(settings=FRONT, store=one) as first,
        serve(settings=FRONT, store=two) as second,
        first.client(key := await first.key('run', 'approve')) as here_http,
        second.client(key) as there_http,
    ):
        here, there = TasksClient(over_http(here_http)), TasksClient(over_http(there_http))
        async with serve(store=three):
            task, forms = await paused(here)
        await there.update(task, {key: accepted('approve') for key in forms})
        assert (await here.get(task))['status'] == 'working'
        [run] = [run.run_id for run in await one.queue.list() if run.run_id != task]
        assert (await here.call('get_run', run=run))['taskId'] == task
        async with serve(store=three):
            assert (await here.wait(task))['status'] == 'completed'
        assert (await there.get(task))['status'] == 'completed'


async def test_requests_that_resume_at_once_start_one_run(client: TasksClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another request has resumed the turn first, the update has done what it should."""
    start = _tasks.start_run

    async def start_second(*arguments: Any) -> None:
        await (await start(*arguments)).begun.wait()
        raise ServerError('conflict')

    task, forms = await paused(client)
    with monkeypatch.context() as patch:
        patch.setattr(_tasks, 'start_run', start_second)  # the other request comes between a check and the start
        await client.update(task, {key: accepted('approve') for key in forms})
    assert (await client.wait(task))['status'] == 'completed'


async def test_answer_that_comes_second_is_acknowledged(client: TasksClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another request has answered the form first, its answer counts, and the turn resumes."""
    answer = _approvals.answer_approval

    async def answer_second(approval: str, given: Answer, access: Access, *, resume: bool) -> AnsweredApproval:
        await answer(approval, Answer(decision='deny', reason='First.'), access, resume=resume)
        return await answer(approval, given, access, resume=resume)

    task, forms = await paused(client)
    with monkeypatch.context() as patch:
        patch.setattr(_approvals, 'answer_approval', answer_second)  # the other request comes after the form was read
        await client.update(task, {key: accepted('approve') for key in forms})
    assert await files_of(client, await client.wait(task)) == []


async def test_refused_cancellation_does_not_say_that_the_task_is_unknown(
    client: TasksClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the process of the run does not end it in time, the error says so, and the request may be repeated."""

    async def refuse(*arguments: Any) -> None:
        raise ServerError('unavailable', 'The process that executes the run has not ended it yet.')

    task, _ = await paused(client)
    monkeypatch.setattr(_turns, 'cancel_own_run', refuse)  # a test does not wait for ten seconds
    assert (await client.send('tasks/cancel', taskId=task))['error'] == snapshot(
        {'code': -32603, 'message': 'The process that executes the run has not ended it yet.'}
    )


async def test_client_that_had_a_form_without_tasks_continues_with_one(connect: Connect, client: TasksClient) -> None:
    """A repeated call with a filled form is a task too, if the client has declared the extension meanwhile."""
    async with connect() as plain:
        run = result_of(await plain.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
    [shown] = run['approvals']
    form = {f'{shown["approval"]}:{shown["digest"]}': accepted('approve')}
    created = await client.request(
        'tools/call', name='get_run', arguments={'run': run['run']}, requestState=run['run'], inputResponses=form
    )
    assert created.get('taskId', run['run']) == run['run']
    assert (await client.wait(run['run']))['status'] == 'completed'
