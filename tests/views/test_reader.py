"""`StoreReader`: what it shows, and what it reads from the store."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

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


@pytest.mark.parametrize(
    ('model', 'tokens', 'expected'),
    [
        ('claude-sonnet-4-5', 1200, {'tokens': 1280, 'window': 200_000}),
        ('unknown', 1200, {'tokens': 1280, 'window': None}),
        ('unknown', 0, None),
    ],
)
async def test_conversation_tells_how_full_the_context_is(
    store: SqlStore, model: str, tokens: int, expected: dict[str, int | None] | None
):
    """The size is that of the last request and its response, as the provider counted them; the window is that of the model
    that responded. Both are null if they are unknown."""

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        usage = RequestUsage(input_tokens=tokens, output_tokens=80)
        return ModelResponse([TextPart('Hi.')], provider_name='anthropic', usage=usage)

    agent = VersionedAgent(create_deep_agent(FunctionModel(respond, model_name=model)), store)
    root = await agent.create()
    version = await root.advance('Hello')
    record = await store.conversation(root.conversation_id)
    assert record is not None

    record = record._replace(head_id=version.id)
    context = (await StoreReader(store).conversation(record, newest=version.record)).context
    assert (None if context is None else context.model_dump()) == expected
