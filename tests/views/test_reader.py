"""One schema per stored object: `--json` on the command line and the HTTP API return the same documents."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from anyio.to_thread import run_sync
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from typer.testing import CliRunner

from pydantic_deep import StateBackend, create_deep_agent
from pydantic_deep.cli._app import app
from pydantic_deep.cli._environment import Environment
from pydantic_deep.store import SqlStore, VersionFilter, open_store
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from pydantic_deep.views import StoreReader
from tests.server.conftest import Client, MakeClient
from tests.versions.conftest import CountingEngine, SpyStore

pytestmark = pytest.mark.anyio

Print: TypeAlias = Callable[..., Awaitable[Any]]
"""Runs a command with `--json` and returns the printed document."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Follow the user's command: `write PATH`, `delegate`, `plan` or `fail`."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    if any(isinstance(part, ToolReturnPart) for part in last.parts):
        return 'Done.'
    (prompt,) = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    verb, _, path = prompt.partition(' ')
    if verb == 'write':
        return call('write_file', path=path, content=f'{len(messages)}\n')
    if verb == 'plan':
        return call('write_todos', todos=[{'content': 'Write it', 'status': 'in_progress'}])
    if verb == 'fail':
        raise ValueError('secret')
    return call('task', subagent='scribe', description='look') if verb == 'delegate' else 'Looked.'


@pytest.fixture
def agents() -> Mapping[str, Any]:
    model = ScriptedModel(then=answer)
    scribe = Subagent(name='scribe', description='Looks.', instructions='Look.')
    return {
        'analyst': create_deep_agent(model, subagents=[scribe]),
        'asker': create_deep_agent(model, interrupt_on={'write_file': True}),
    }


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqlStore]:
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        yield store


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run', 'approve')


@pytest.fixture
def print_json(tmp_path: Path) -> Print:
    async def invoke(*args: str) -> Any:
        options = [*args, '--json', '--store', f'sqlite:///{tmp_path}/agents.db']
        environment = Environment(variables={'HOME': str(tmp_path)})
        done = await run_sync(partial(CliRunner().invoke, app, options, obj=environment))
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    return invoke


async def converse(client: Client, agent: str, *prompts: str) -> str:
    """Start a conversation and return its id."""
    path = (await client.post('/api/conversations', json={'agent': agent})).headers['location']
    for prompt in prompts:
        await client.post(f'{path}/turns', json={'prompt': prompt})
    return path.rpartition('/')[2]


async def test_versions_are_equal_on_the_command_line_and_over_http(ada: Client, print_json: Print):
    id = await converse(ada, 'analyst', 'write /a.txt', 'plan', 'delegate', 'write /b.txt')

    for params, options in (({}, ()), ({'steps': 'true'}, ('--steps',))):
        served = (await ada.get(f'/api/conversations/{id}/versions', params=params)).json()['items']
        assert await print_json('log', '--conversation', id, *options) == served
        assert [each['is_head'] for each in served] == [True] + [False] * (len(served) - 1)
    for version in served:
        details = (await ada.get(f'/api/versions/{version["id"]}')).json()
        assert await print_json('show', version['id']) == {**details, 'metadata': {'server.owner': 'ada'}}
        assert {name: details[name] for name in version} == version
        assert details['metadata'] == {}
    facts = [(each['kind'], each['prompt'], each['calls'], each['files_changed']) for each in served]
    assert facts == [
        ('turn', 'write /b.txt', [], ['/b.txt']),
        ('step', 'write /b.txt', ['write_file'], []),
        ('turn', 'delegate', [], []),
        ('step', 'delegate', ['task'], []),
        ('turn', 'plan', [], []),
        ('step', 'plan', ['write_todos'], []),
        ('turn', 'write /a.txt', [], ['/a.txt']),
        ('step', 'write /a.txt', ['write_file'], []),
        ('root', None, [], []),
    ]


async def test_details_contain_the_tool_calls_and_subagents_of_the_turn(ada: Client, print_json: Print):
    id = await converse(ada, 'analyst', 'write /a.txt', 'delegate')
    served = (await ada.get(f'/api/conversations/{id}/versions')).json()['items']
    delegated, written, _ = [(await ada.get(f'/api/versions/{each["id"]}')).json() for each in served]

    assert written['tool_calls'] == [
        {
            'id': written['tool_calls'][0]['id'],
            'name': 'write_file',
            'args': '{"path": "/a.txt", "content": "1\\n"}',
            'outcome': 'success',
            'content': 'Created /a.txt: 1 line, 2 bytes.',
            'exit_code': None,
        }
    ]
    assert [(each['path'], each['shown_path'], each['kind']) for each in written['files']] == [
        ('/a.txt', ['/a.txt'], 'added')
    ]
    assert [(each['number'], each['model'], each['kind']) for each in written['requests']] == [
        (1, 'scripted', 'answer'),
        (2, 'scripted', 'answer'),
    ]
    assert (written['output'], len(written['steps']), written['subagents']) == ('Done.', 1, [])
    (thread,) = delegated['subagents']
    assert (thread['subagent'], thread['intent'], thread['state'], thread['subagents']) == (
        'scribe',
        'look',
        'complete',
        [],
    )


async def test_diffs_are_equal_on_the_command_line_and_over_http(ada: Client, print_json: Print):
    id = await converse(ada, 'analyst', 'write /a.txt', 'write /a.txt', 'plan')
    newest, *_, oldest = (await ada.get(f'/api/conversations/{id}/versions')).json()['items']

    served = (await ada.get(f'/api/versions/{oldest["id"]}/diff', params={'to': newest['id']})).json()

    assert await print_json('diff', oldest['id'], newest['id']) == served
    assert [each['path'] for each in served['files']] == ['/a.txt']


async def test_approvals_are_equal_on_the_command_line_and_over_http(ada: Client, print_json: Print):
    pending, id = [await converse(ada, 'asker', f'write {path}') for path in ('/a.txt', '/b.txt')]
    (asked,) = (await ada.get('/api/approvals', params={'conversation': id})).json()['items']
    edit = {'path': '/c.txt', 'content': 'c\n'}
    answers = {asked['pending_id']: {'decision': 'edit', 'args': edit, 'digest': asked['view']['digest']}}
    await ada.post(f'/api/conversations/{id}/resume', json={'answers': answers, 'reason': 'Better there.'})

    served = (await ada.get('/api/approvals', params={'all': 'true'})).json()['items']

    assert await print_json('approvals', 'list', '--status', 'all') == served[::-1]
    assert [(each['status'], each['reason'], each['edited_args']) for each in served] == [
        ('edited', 'Better there.', edit),
        ('pending', None, None),
    ]
    head = (await ada.get(f'/api/conversations/{pending}')).json()
    (version,) = await print_json('log', '--conversation', pending, '-n', '1')
    details = await print_json('show', head['head'])
    assert (version['is_pending'], details['approvals']) == (True, head['approvals'])


async def test_only_the_command_line_shows_exception_messages(ada: Client, print_json: Print):
    id = await converse(ada, 'analyst', 'fail')
    head = (await ada.get(f'/api/conversations/{id}')).json()['head']
    (failed, _) = (await ada.get(f'/api/conversations/{id}/versions')).json()['items']

    assert failed['id'] != head
    assert (await ada.get(f'/api/versions/{failed["id"]}')).json()['error'] == 'ValueError'
    assert (await print_json('show', failed['id']))['error'] == 'ValueError: secret'


async def test_changed_files_are_unknown_without_versioned_files_or_a_parent(store: SqlStore):
    agent = VersionedAgent(create_deep_agent(ScriptedModel(then=answer)), store)
    without = await VersionedAgent(Agent(ScriptedModel()), store).create()
    root = await agent.create(backend=StateBackend())
    orphan = await (await root.advance('write /a.txt')).advance('plan')
    reader = StoreReader(store)

    assert [(await reader.version(each.record)).files_changed for each in (without, root)] == [None, []]
    await store.delete(orphan.parent_id or '')
    assert (await reader.version(orphan.record)).files_changed is None
    assert (await reader.details(orphan.record)).files == []


async def test_prompt_marks_each_media_part(store: SqlStore):
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Nice.')), store)
    version = await (await agent.create()).advance(['Look', BinaryContent(b'\x89PNG', media_type='image/png')])

    assert (await StoreReader(store).version(version.record)).prompt == 'Look\n[media]'


async def test_page_cost_does_not_depend_on_its_position():
    spy = SpyStore(CountingEngine(MemoryEngine.open()))
    agent = VersionedAgent(create_deep_agent(ScriptedModel(then=answer)), spy)
    version = await agent.create(backend=StateBackend())
    for number in range(12):
        version = await version.advance(f'write /{number}.txt')
    records = await spy.versions(VersionFilter(kinds=['turn']))
    counts: list[int] = []
    for page in (records[:4], records[8:], records):
        spy.counting.reads.clear()
        await StoreReader(spy).versions(page)
        counts.append(len(spy.counting.reads))

    late, early, whole = counts
    assert late <= early + 1
    assert whole <= 3 * late
    await spy.aclose()


async def test_details_of_a_turn_do_not_read_earlier_history(monkeypatch: pytest.MonkeyPatch):
    async with SpyStore(CountingEngine(MemoryEngine.open())) as spy:
        version = await VersionedAgent(create_deep_agent(ScriptedModel(then=answer)), spy).create(
            backend=StateBackend()
        )
        for number in range(6):
            version = await version.advance(f'write /{number}.txt')
        read: list[int] = []
        messages = spy.messages

        async def count(branch_id: str, stop: int, *, start: int = 0) -> Any:
            read.append(stop - start)
            return await messages(branch_id, stop, start=start)

        monkeypatch.setattr(spy, 'messages', count)
        details = await StoreReader(spy).details(version.record)

        assert [file.path for file in details.files] == ['/5.txt']
        assert version.message_count == 24
        assert max(read) <= 6


async def test_secrets_in_model_settings_are_redacted(store: SqlStore):
    settings: Any = {'temperature': 0.5, 'extra_body': {'api_key': 'sk-secret'}}
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Hi.'), model_settings=settings), store)
    version = await (await agent.create()).advance('Hello')

    (request,) = (await StoreReader(store).details(version.record)).requests
    assert request.settings == {'temperature': 0.5, 'extra_body': {'api_key': '[redacted: api key]'}}
