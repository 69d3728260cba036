"""Validation of requests before a turn starts, on the own routes and on those of other APIs."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings
from pydantic_deep.testing import ScriptedModel, call

from .conftest import Client, MakeClient, Serve

pytestmark = pytest.mark.anyio


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run', 'approve')


async def begin(client: Client) -> str:
    return (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']


@pytest.mark.parametrize(
    ('body', 'field'),
    [
        ({'prompt': ''}, 'prompt'),
        ({'prompt': ' \n'}, 'prompt'),
        ({'prompt': 5}, 'prompt'),
        ({'prompt': 'Go', 'model_settings': {'temperature': 'hot'}}, 'temperature'),
        ({'prompt': 'Go', 'model_settings': {'max_tokens': -1}}, 'max_tokens'),
        ({'prompt': 'Go', 'model_settings': {'max_tokens': 10**30}}, 'max_tokens'),
        ({'prompt': 'Go', 'branch': '  '}, 'branch'),
    ],
)
async def test_invalid_turn_argument_is_refused_by_name(ada: Client, body: dict[str, Any], field: str) -> None:
    """An empty or blank prompt and invalid settings return 422 with the `field`, and no run starts."""
    path = await begin(ada)
    answer = await ada.post(f'{path}/turns', json=body)
    assert (answer.status_code, answer.json()['error']['field']) == (422, field)
    assert (await ada.get('/api/runs', params={'conversation': path.rpartition('/')[2]})).json()['items'] == []


async def test_lone_surrogate_is_refused(ada: Client) -> None:
    path = await begin(ada)
    answer = await ada.post(
        f'{path}/turns', content=b'{"prompt": "a\\ud83d"}', headers={'content-type': 'application/json'}
    )
    assert answer.status_code == 422


@pytest.mark.parametrize('text', ['', '  '])
@pytest.mark.parametrize('api', ['openai', 'anthropic', 'google'])
async def test_blank_prompt_is_refused_on_compatible_routes(ada: Client, api: str, text: str) -> None:
    """The routes of OpenAI, Anthropic and Google return an error in their own format, and no run starts."""
    message = {'role': 'user', 'content': text}
    path, body = {
        'openai': ('/v1/chat/completions', {'model': 'analyst', 'messages': [message]}),
        'anthropic': ('/v1/messages', {'model': 'analyst', 'messages': [message], 'max_tokens': 9}),
        'google': (
            '/v1beta/models/analyst:generateContent',
            {'contents': [{'role': 'user', 'parts': [{'text': text}]}]},
        ),
    }[api]
    answer = await ada.post(path, json=body)
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize('number', ['-1', '0', str(10**30), 'x', '1.5'])
async def test_invalid_page_limits_are_refused(ada: Client, number: str) -> None:
    path = await begin(ada)
    for route in ('/api/conversations', f'{path}/versions', '/api/runs', '/api/approvals'):
        answer = await ada.get(route, params={'limit': number})
        assert (answer.status_code, answer.json()['error']['field']) == (422, 'limit')


async def test_transcript_contains_nan_and_infinity_as_text(serve: Serve):
    """A tool may return NaN, which a version stores. The transcript contains it as text."""

    def measure() -> list[float]:
        return [math.nan, math.inf]

    agents = {'a': create_deep_agent(ScriptedModel(call('measure'), 'done'), tools=[measure])}
    async with serve(agents) as served, served.client(await served.key()) as client:
        path = (await client.post('/api/conversations', json={'agent': 'a'})).headers['location']
        run = (await client.post(f'{path}/turns', json={'prompt': 'x'})).json()
        messages = (await client.get(f'{path}/messages')).json()['messages']
        root = (await client.get(f'/api/versions/{run["version_id"]}')).json()['parent_id']
        diff = await client.get(f'/api/versions/{root}/diff', params={'to': run['version_id']})
        listed = await client.get(f'/api/runs/{run["id"]}/events', params={'tool_results': True})
        blank = await client.patch(path, json={'name': ' '})
    assert [part['content'] for part in messages[2]['parts']] == [['NaN', 'Infinity']]
    assert (diff.status_code, listed.status_code) == (200, 200)
    assert (blank.status_code, blank.json()['error']['field']) == (422, 'name')


@pytest.mark.parametrize('id', ['', ' ', '\n\t', 'a\0b', '\0'])
async def test_blank_session_id_is_refused(ada: Client, id: str) -> None:
    """A blank `session_id`, or one with a NUL, returns 422 with the `field`, and no run starts."""
    path = await begin(ada)
    root = (await ada.get(path)).json()['head']
    for route, body in (
        (f'{path}/turns', {'prompt': 'Go'}),
        (f'/api/versions/{root}/branch', {'prompt': 'Go'}),
        (f'{path}/resume', {}),
    ):
        answer = await ada.post(route, json={**body, 'session_id': id})
        assert (answer.status_code, answer.json()['error']['field']) == (422, 'session_id')
    assert (await ada.get('/api/runs', params={'conversation': path.rpartition('/')[2]})).json()['items'] == []


@pytest.mark.parametrize('id', [' ', 'a\0b'])
@pytest.mark.parametrize(
    ('path', 'body', 'status'),
    [
        ('/v1/chat/completions', {'model': 'analyst', 'user': 'ID'}, 400),
        ('/v1/chat/completions', {'model': 'analyst', 'metadata': {'session_id': 'ID'}, 'user': 'u'}, 400),
        ('/v1/messages', {'model': 'analyst', 'max_tokens': 9, 'metadata': {'user_id': 'ID'}}, 400),
        ('/v1beta/models/analyst:generateContent', {'labels': {'session_id': 'ID'}}, 400),
        ('/ag-ui/analyst', {'threadId': 'ID', 'runId': 'r', 'state': {}, 'tools': [], 'context': []}, 422),
        ('/vercel/analyst', {'id': 'ID', 'trigger': 'submit-message'}, 422),
    ],
)
async def test_blank_session_id_is_refused_on_compatible_routes(
    ada: Client, path: str, body: dict[str, Any], status: int, id: str
) -> None:
    """The error has the format of the route, and no conversation is created."""
    message = {'role': 'user', 'content': 'Go', 'id': 'm', 'parts': [{'type': 'text', 'text': 'Go'}]}
    said = {'contents': [{'role': 'user', 'parts': [{'text': 'Go'}]}]} if 'labels' in body else {'messages': [message]}
    sent = json.loads(json.dumps({**body, **said}).replace('"ID"', json.dumps(id)))
    answer = await ada.post(path, json=sent)
    assert (answer.status_code, 'session_id' in answer.text) == (status, True), answer.text
    assert (await ada.get('/api/conversations')).json()['items'] == []


async def test_server_fills_the_directory_of_its_setting_before_a_turn(
    serve: Serve, settings: ServerSettings, tmp_path: Path
) -> None:
    """A turn works in the directory of its conversation, with the files of its base, also after the files were lost."""
    write = call('write_file', path='/a.txt', content='x')
    agent = create_deep_agent(ScriptedModel(write, 'Written.', call('read_file', path='/a.txt'), 'Read.'))
    settings = settings.model_copy(update={'work_dir': tmp_path / 'work'})
    async with (
        serve(agents={'analyst': agent}, settings=settings) as served,
        served.client(await served.key('run')) as ada,
    ):
        path = (await ada.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
        assert (await ada.put(f'{path}/uploads/b.txt', content=b'y')).status_code < 300
        first = (await ada.post(f'{path}/turns', json={'prompt': 'Write.'})).json()
        directory = tmp_path / 'work' / path.rpartition('/')[2]
        assert (first['state'], (directory / 'a.txt').read_bytes()) == ('complete', b'x')
        shutil.rmtree(directory)
        second = (await ada.post(f'{path}/turns', json={'prompt': 'Read.'})).json()
        assert (second['state'], (directory / 'a.txt').read_bytes()) == ('complete', b'x')
        assert (directory / 'uploads' / 'b.txt').read_bytes() == b'y'
