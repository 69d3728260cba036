"""Token counts in the formats of Anthropic and Google."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.anyio

TOOLS = [{'name': 'weather', 'description': 'w' * 400, 'input_schema': {'type': 'object'}}]


async def count(client: Any, *said: str, **more: Any) -> int:
    roles = ('user', 'assistant')
    messages = [{'role': roles[place % 2], 'content': text} for place, text in enumerate(said)]
    response = await client.post('/v1/messages/count_tokens', json={'model': 'analyst', 'messages': messages, **more})
    assert response.status_code == 200, response.text
    return response.json()['input_tokens']


async def test_unknown_dialogue_is_estimated(served: Any) -> None:
    async with served.client(await served.key('run')) as client:
        assert await count(client, 'x' * 400) == 104
        assert await count(client, 'x' * 400, 'y' * 40) == 118
        assert await count(client, 'x' * 400, system='s' * 80) == 128
        assert await count(client, 'x' * 400, tools=TOOLS) > 204
        assert await served.store.conversations() == []


async def test_known_dialogue_has_the_context_of_its_version(served: Any) -> None:
    """The scripted model reports 110 tokens for the first turn."""
    async with served.client(await served.key('run')) as client:
        sent = {'model': 'analyst', 'max_tokens': 99, 'messages': [{'role': 'user', 'content': 'Hi'}]}
        told = (await client.post('/v1/messages', json=sent)).json()

        assert await count(client, 'Hi', told['content'][0]['text'], 'x' * 400) == 110 + 104


async def test_results_count(served: Any) -> None:
    messages: list[dict[str, Any]] = [
        {'role': 'user', 'content': 'Hi'},
        {'role': 'assistant', 'content': [{'type': 'tool_use', 'id': 'a', 'name': 'weather', 'input': {}}]},
        {'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'a', 'content': 'x' * 400}]},
    ]
    async with served.client(await served.key('run')) as client:
        response = await client.post('/v1/messages/count_tokens', json={'model': 'analyst', 'messages': messages})

        assert response.json() == {'input_tokens': 5 + 7 + 104}


async def test_google_counts_contents_or_a_whole_request(served: Any) -> None:
    contents = [{'role': 'user', 'parts': [{'text': 'x' * 400}]}]
    whole = {'contents': contents, 'systemInstruction': {'parts': [{'text': 's' * 80}]}}
    async with served.client(await served.key('run')) as client:

        async def ask(body: dict[str, Any]) -> Any:
            return (await client.post('/v1beta/models/analyst:countTokens', json=body)).json()

        assert await ask({'contents': contents}) == {'totalTokens': 104}
        assert await ask({'generateContentRequest': whole}) == {'totalTokens': 128}
        assert 'nothing to count' in (await ask({}))['error']['message']
