"""The API of Google on its own routes; `test_compat.py` tests what the APIs have in common."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaThinkingCalls, DeltaThinkingPart, FunctionModel

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel, call
from tests.server.conftest import Serve

pytestmark = pytest.mark.anyio

BODY: dict[str, Any] = {'contents': [{'role': 'user', 'parts': [{'text': 'Hi'}]}]}


@pytest.mark.parametrize('version', ['v1', 'v1beta'])
async def test_both_versions_of_the_api_answer(serve: Serve, version: str) -> None:
    """Clients use `v1` or `v1beta`; both generate, stream and count."""
    agent = create_deep_agent(ScriptedModel(then=lambda messages, info: 'Hello.'))
    async with serve(agents={'analyst': agent}) as served, served.client(await served.key('run')) as ada:
        path = f'/{version}/models/analyst'
        whole = (await ada.post(f'{path}:generateContent', json=BODY)).json()
        streamed = (await ada.post(f'{path}:streamGenerateContent?alt=sse', json=BODY)).text
        counted = (await ada.post(f'{path}:countTokens', json=BODY)).json()
    assert whole['candidates'][0]['content']['parts'] == [{'text': 'Hello.'}]
    assert '"text":"Hello."' in streamed
    assert counted['totalTokens'] > 0


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


async def test_models_of_the_first_version_have_the_fields_of_all_clients(serve: Serve) -> None:
    """Google's newest client lists models at `/v1/models`, as the clients of OpenAI and Anthropic do."""
    async with serve() as served, served.client(await served.key('run')) as ada:
        listed = (await ada.get('/v1/models')).json()
        one = (await ada.get('/v1/models/analyst')).json()
    assert listed['models'] == listed['data']
    assert one in listed['data']
    assert (one['id'], one['display_name'], one['name']) == ('analyst', 'analyst', 'models/analyst')


def choose(messages: list[ModelMessage], info: AgentInfo) -> Any:
    return ['I choose.', call(info.output_tools[0].name, response='flute')] if info.output_tools else 'Hello.'


@pytest.mark.parametrize('method', ['generateContent', 'streamGenerateContent'])
async def test_an_answer_that_is_one_of_several_strings_has_no_quotes(serve: Serve, method: str) -> None:
    """`text/x.enum` of Google: the answer is one of the strings of the schema, as it is."""
    schema = {'type': 'STRING', 'enum': ['flute', 'drum']}
    config = {'responseMimeType': 'text/x.enum', 'responseSchema': schema}
    agents = {'analyst': create_deep_agent(ScriptedModel(then=choose))}
    async with serve(agents=agents) as served, served.client(await served.key('run')) as ada:
        path = f'/v1beta/models/analyst:{method}'
        answer = (await ada.post(path, json={**BODY, 'generationConfig': config})).text
        contents = [*BODY['contents'], {'role': 'model', 'parts': [{'text': 'flute'}]}, *BODY['contents']]
        await ada.post(path, json={'contents': contents})
        conversations = await served.store.conversations()
    assert '"text":"flute"' in answer
    assert 'I choose' not in answer
    assert len(conversations) == 1  # the client's next request finds the version by the answer


@pytest.mark.parametrize('wire', ['google', 'anthropic'])
@pytest.mark.parametrize('is_streamed', [False, True])
async def test_thinking_is_sent_if_the_client_asks_for_it(serve: Serve, wire: str, is_streamed: bool) -> None:
    """`includeThoughts` of Google, and `thinking` of Anthropic, whose thinking has a signature."""

    async def think(messages: list[ModelMessage], info: AgentInfo) -> AsyncGenerator[str | DeltaThinkingCalls]:
        yield {0: DeltaThinkingPart(content='Hm.', signature='s')}
        yield 'Hello.'

    agents = {'analyst': create_deep_agent(FunctionModel(stream_function=think))}
    async with serve(agents=agents) as served, served.client(await served.key('run')) as ada:
        for asks in (False, True):
            path, body = thinking_request(wire, asks=asks, is_streamed=is_streamed)
            answer = (await ada.post(path, json=body)).text
            assert ('Hm.' in answer, 'Hello.' in answer) == (asks, True), answer


def thinking_request(wire: str, *, asks: bool, is_streamed: bool) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of a request that asks for thinking, or not."""
    if wire == 'google':
        method = 'streamGenerateContent' if is_streamed else 'generateContent'
        config = {'thinkingConfig': {'includeThoughts': asks}}
        return f'/v1beta/models/analyst:{method}', {**BODY, 'generationConfig': config}
    options = {'type': 'enabled' if asks else 'disabled'}
    said = [{'role': 'user', 'content': 'Hi'}]
    return '/v1/messages', {'model': 'analyst', 'messages': said, 'thinking': options, 'stream': is_streamed}
