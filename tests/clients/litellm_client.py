"""LiteLLM over the APIs of OpenAI, Anthropic and Google."""

from __future__ import annotations

import json

import litellm
from run import Server

SAID = [{'role': 'user', 'content': 'Hi'}]
TOOL = {
    'type': 'function',
    'function': {
        'name': 'weather',
        'description': 'Return the weather of a city.',
        'parameters': {'type': 'object', 'properties': {'city': {'type': 'string'}}},
    },
}


def _wires(server: Server) -> list[dict[str, str]]:
    return [
        {'model': 'openai/writer', 'api_base': server.openai, 'api_key': server.key},
        {'model': 'anthropic/writer', 'api_base': server.url, 'api_key': server.key},
        {'model': 'gemini/writer', 'api_base': f'{server.url}/v1beta', 'api_key': server.key},
    ]


def check_completion(server: Server) -> None:
    for wire in _wires(server):
        found = litellm.completion(**wire, messages=SAID).choices[0].message.content
        assert found == 'You said: Hi, after 0 messages.', (wire, found)


def check_stream(server: Server) -> None:
    for wire in _wires(server):
        chunks = litellm.completion(**wire, messages=SAID, stream=True)
        found = ''.join(chunk.choices[0].delta.content or '' for chunk in chunks)
        assert found == 'You said: Hi, after 0 messages.', (wire, found)


async def check_async(server: Server) -> None:
    for wire in _wires(server):
        found = await litellm.acompletion(**wire, messages=SAID)
        assert found.choices[0].message.content == 'You said: Hi, after 0 messages.', (wire, found)


def check_function_calling(server: Server) -> None:
    for wire in _wires(server):
        messages = [{'role': 'user', 'content': 'weather Paris Rome'}]
        asked = litellm.completion(**wire, messages=messages, tools=[TOOL]).choices[0].message
        cities = [json.loads(call.function.arguments)['city'] for call in asked.tool_calls]
        assert cities == ['Paris', 'Rome'], (wire, cities)
        messages.append(asked.model_dump())
        for call, city in zip(asked.tool_calls, cities, strict=True):
            result = {'role': 'tool', 'tool_call_id': call.id, 'name': 'weather', 'content': f'sunny in {city}'}
            messages.append(result)
        found = litellm.completion(**wire, messages=messages, tools=[TOOL]).choices[0].message.content
        assert found.startswith('Done: '), (wire, found)
        assert 'sunny in Rome' in found, (wire, found)


def check_json_schema(server: Server) -> None:
    schema = {
        'type': 'object',
        'properties': {'city': {'type': 'string'}, 'degrees': {'type': 'integer'}},
        'required': ['city', 'degrees'],
        'additionalProperties': False,
    }
    format = {'type': 'json_schema', 'json_schema': {'name': 'report', 'schema': schema, 'strict': True}}
    for wire in _wires(server):
        found = litellm.completion(**wire, messages=SAID, response_format=format).choices[0].message.content
        assert json.loads(found) == {'city': 'Rome', 'degrees': 40}, (wire, found)


def check_responses(server: Server) -> None:
    wire = _wires(server)[0]
    found = litellm.responses(**wire, input='Hi')
    assert found.output[0].content[0].text == 'You said: Hi, after 0 messages.', found
    chunks = [*litellm.responses(**wire, input='Ho', stream=True)]
    assert chunks[-1].type == 'response.completed', chunks
