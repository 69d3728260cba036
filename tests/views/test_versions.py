"""Versions have one form on the command line and over HTTP."""

from __future__ import annotations

import pytest

from tests.server.conftest import Client
from tests.views.conftest import Print, converse

pytestmark = pytest.mark.anyio


@pytest.mark.slow
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
