"""`StoreReader`: what it shows, and what it reads from the store."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent

from pydantic_deep import StateBackend, create_deep_agent
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import VersionedAgent
from pydantic_deep.views import StoreReader
from tests.server.conftest import Client
from tests.views.conftest import Print, answer, converse

pytestmark = pytest.mark.anyio


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


async def test_secrets_in_model_settings_are_redacted(store: SqlStore):
    settings: Any = {'temperature': 0.5, 'extra_body': {'api_key': 'sk-secret'}}
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Hi.'), model_settings=settings), store)
    version = await (await agent.create()).advance('Hello')

    (request,) = (await StoreReader(store).details(version.record)).requests
    assert request.settings == {'temperature': 0.5, 'extra_body': {'api_key': '[redacted: api key]'}}
