"""Conversations over HTTP: begun, found, read and deleted, by their owner alone."""

from __future__ import annotations

import pytest

from pydantic_deep.store import VersionFilter
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep import create_deep_agent
from pydantic_deep.subagents import Subagent

from .conftest import MakeClient, Serve, Served

pytestmark = pytest.mark.anyio


async def test_a_conversation_begins_empty_and_is_there(make_client: MakeClient):
    """004-12"""
    ada = await make_client('run')

    created = await ada.post('/api/conversations', json={'agent': 'analyst', 'name': 'Sales', 'metadata': {'a': [1]}})

    assert created.status_code == 201
    body = created.json()
    assert created.headers['location'] == f'/api/conversations/{body["id"]}'
    assert body | {'id': '', 'head': '', 'created_at': ''} == {
        'id': '', 'agent': 'analyst', 'name': 'Sales', 'metadata': {'a': [1]}, 'head': '', 'state': 'complete',
        'branch': 'main', 'running': [], 'todos': [], 'approvals': [], 'created_at': '',
        'usage': {name: 0 for name in body['usage']},
    }  # fmt: skip
    assert (await ada.get(created.headers['location'])).json() == body


async def test_a_turn_is_in_the_transcript(make_client: MakeClient):
    ada = await make_client('run')
    path = (await ada.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
    root = (await ada.get(path)).json()['head']

    run = (await ada.post(f'{path}/turns', json={'prompt': 'Hi'})).json()

    transcript = (await ada.get(f'{path}/messages')).json()
    assert transcript['format_version'] == 1
    assert [message['kind'] for message in transcript['messages']] == ['request', 'response']
    assert transcript['messages'][1]['parts'][0]['content'] == 'You said: Hi' == run['output']
    assert (await ada.get(f'{path}/messages', params={'version': root})).json()['messages'] == []
