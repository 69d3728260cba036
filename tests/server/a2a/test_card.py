"""Cards: what other agents learn about ours, and who may read them."""

from __future__ import annotations

import httpx
import pytest
from a2a.client import A2ACardResolver
from inline_snapshot import snapshot

from pydantic_deep import create_deep_agent
from pydantic_deep.skills import Skill
from pydantic_deep.testing import ScriptedModel
from tests.server.conftest import BASE_URL, Client, MakeClient, Serve

pytestmark = pytest.mark.anyio

CARD = '/.well-known/agent-card.json'


async def test_card_describes_an_agent_for_both_versions_of_the_protocol(make_client: MakeClient) -> None:
    """Clients of A2A 1.0 and 0.3 find the URL, the key and the skills where their version has them."""
    answer = await (await make_client('run')).get(f'/a2a/writer{CARD}')
    assert answer.json() == snapshot(
        {
            'name': 'writer',
            'description': 'Writes files.',
            'supportedInterfaces': [
                {
                    'url': 'http://localhost/a2a/writer',
                    'protocolBinding': 'JSONRPC',
                    'protocolVersion': '1.0',
                },
                {
                    'url': 'http://localhost/a2a/writer',
                    'protocolBinding': 'JSONRPC',
                    'protocolVersion': '0.3',
                },
            ],
            'version': '0.1.0',
            'capabilities': {
                'streaming': True,
                'pushNotifications': False,
                'extendedAgentCard': False,
            },
            'securitySchemes': {
                'key': {
                    'httpAuthSecurityScheme': {'scheme': 'bearer'},
                    'scheme': 'bearer',
                    'type': 'http',
                }
            },
            'securityRequirements': [{'schemes': {'key': {}}}],
            'defaultInputModes': ['text/plain', 'application/json'],
            'defaultOutputModes': ['text/plain', 'application/json'],
            'skills': [
                {
                    'id': 'writer',
                    'name': 'writer',
                    'description': 'Writes files.',
                    'tags': ['agent'],
                }
            ],
            'preferredTransport': 'JSONRPC',
            'protocolVersion': '0.3',
            'security': [{'key': []}],
            'url': 'http://localhost/a2a/writer',
        }
    )


async def test_root_has_the_card_of_the_only_agent_of_a_caller(make_client: MakeClient) -> None:
    """A client that knows only the host finds the agent, if its key has one; otherwise the error names the cards."""
    one = await make_client('run', agents=['asker'])
    resolver = A2ACardResolver(one, BASE_URL)
    card = await resolver.get_agent_card()
    assert (card.name, card.description) == ('asker', 'The agent asker.')
    assert [interface.url for interface in card.supported_interfaces] == [f'{BASE_URL}/a2a/asker'] * 2
    several = await (await make_client('run', agents=['asker', 'writer'])).get(CARD)
    assert several.status_code == 404
    assert several.json()['error']['message'] == snapshot(
        'This server has 2 agents, each with a card of its own: /a2a/asker/.well-known/agent-card.json, /a2a/writer/.well-known/agent-card.json.'
    )
    none: httpx.Response = await (await make_client('run', agents=['gone'])).get(CARD)
    assert (none.status_code, none.json()['error']['type']) == (404, 'not_found')


async def test_card_lists_the_skills_of_the_agent(serve: Serve) -> None:
    agent = create_deep_agent(ScriptedModel(), skills=[Skill('poetry', 'Writes poems.', body='Rhyme.')])
    async with serve({'poet': agent}) as served, served.client(await served.key()) as client:
        skills = (await client.get(CARD)).json()['skills']
    assert skills == [{'id': 'poetry', 'name': 'poetry', 'description': 'Writes poems.', 'tags': ['skill']}]


async def test_cards_need_a_key(nobody: Client) -> None:
    """A card names what an agent does, so it is denied by default like all else."""
    for path in (CARD, f'/a2a/writer{CARD}'):
        answer = await nobody.get(path)
        assert (answer.status_code, answer.headers['www-authenticate']) == (401, 'Bearer')


async def test_server_without_the_extra_names_it(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra `a2a`, the routes answer with the command that installs it."""

    def find_nothing(name: str) -> None:
        return None

    monkeypatch.setattr('importlib.util.find_spec', find_nothing)
    client = await make_client('run')
    answers = [
        await client.get(CARD),
        await client.get(f'/a2a/writer{CARD}'),
        await client.post('/a2a/writer', json={}),
    ]
    assert {(answer.status_code, answer.json()['error']['message']) for answer in answers} == {
        (404, "This server does not offer A2A. It needs the extra: `pip install 'versioned-deep-agents[a2a]'`.")
    }
