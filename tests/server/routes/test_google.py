"""The API of Google on its own routes; `test_compat.py` tests what the APIs have in common."""

from __future__ import annotations

import pytest

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel
from tests.server.conftest import Serve

pytestmark = pytest.mark.anyio

BODY = {'contents': [{'role': 'user', 'parts': [{'text': 'Hi'}]}]}


@pytest.mark.parametrize('version', ['v1', 'v1beta'])
async def test_both_versions_of_the_api_answer(serve: Serve, version: str) -> None:
    """Clients use `v1` or `v1beta`; both generate, stream and count."""
    agent = create_deep_agent(ScriptedModel(then=lambda messages, info: 'Hello.'))
    async with serve(agents={'analyst': agent}) as served, served.client(await served.key('run')) as ada:
        path = f'/{version}/models/analyst'
        whole = (await ada.post(f'{path}:generateContent', json=BODY)).json()
        streamed = (await ada.post(f'{path}:streamGenerateContent?alt=sse', json=BODY)).text
        counted = (await ada.post(f'{path}:countTokens', json=BODY)).json()
        wrong = await ada.post(f'{path}:streamGenerateContent?alt=json', json=BODY)
    assert whole['candidates'][0]['content']['parts'] == [{'text': 'Hello.'}]
    assert '"text":"Hello."' in streamed
    assert counted['totalTokens'] > 0
    assert wrong.status_code == 404


async def test_agents_are_listed_as_models(serve: Serve) -> None:
    """The list has the agents that the key may use, and each can be read by its name."""
    agents = {name: create_deep_agent(ScriptedModel()) for name in ('analyst', 'writer')}
    async with serve(agents=agents) as served, served.client(await served.key('run', agents=['writer'])) as ada:
        listed = (await ada.get('/v1beta/models')).json()
        one = (await ada.get('/v1beta/models/writer')).json()
        other = await ada.get('/v1beta/models/analyst')
    assert [model['name'] for model in listed['models']] == ['models/writer']
    assert one == listed['models'][0]
    assert other.status_code == 404
