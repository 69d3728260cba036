"""Compaction by the provider, with the SDKs of OpenAI and Anthropic against a local server."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, cast

import pytest
from pydantic_ai import Agent, RunContext, models
from pydantic_ai.messages import CompactionPart, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.summary_metadata import replaced_messages
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.summarization._summarizer import Written, write_summary

pytestmark = pytest.mark.anyio

KEY = 'no-key'


class Provider(HTTPServer):
    """Requests three calls of `work` and then answers. Compacts any input."""

    def __init__(self) -> None:
        super().__init__(('127.0.0.1', 0), Handler)
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.answered = 0

    @property
    def url(self) -> str:
        return f'http://127.0.0.1:{self.server_port}'

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append((path, body))
        if path.endswith('/compact'):
            item = {'type': 'compaction', 'id': 'cmp_1', 'encrypted_content': 'SEALED'}
            return {**_response('resp_c', []), 'object': 'response.compaction', 'output': [item]}
        if 'compaction' in body:
            block = {'type': 'compaction', 'content': 'What was.', 'signature': 'SIGNED'}
            return _message('msg_c', [block], 'end_turn')
        self.answered += 1
        number = self.answered
        is_call = number <= 3
        if path.endswith('/messages'):
            block = {'type': 'tool_use', 'id': f'c{number}', 'name': 'work', 'input': {'n': number}}
            content = [block] if is_call else [{'type': 'text', 'text': 'done'}]
            return _message(f'msg_{number}', content, 'tool_use' if is_call else 'end_turn')
        item: dict[str, Any] = (
            {
                'type': 'function_call',
                'id': f'fc_{number}',
                'call_id': f'c{number}',
                'name': 'work',
                'arguments': json.dumps({'n': number}),
                'status': 'completed',
            }
            if is_call
            else {
                'type': 'message',
                'id': 'm',
                'role': 'assistant',
                'status': 'completed',
                'content': [{'type': 'output_text', 'text': 'done', 'annotations': []}],
            }
        )
        return _response(f'resp_{number}', [item])


def _response(id: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        'id': id,
        'object': 'response',
        'created_at': 1,
        'model': 'gpt-5.2',
        'status': 'completed',
        'output': output,
        'tools': [],
        'tool_choice': 'auto',
        'parallel_tool_calls': True,
        'usage': {
            'input_tokens': 100,
            'output_tokens': 10,
            'total_tokens': 110,
            'input_tokens_details': {'cached_tokens': 0},
            'output_tokens_details': {'reasoning_tokens': 0},
        },
    }


def _message(id: str, content: list[dict[str, Any]], reason: str) -> dict[str, Any]:
    return {
        'id': id,
        'type': 'message',
        'role': 'assistant',
        'model': 'claude-opus-5-5',
        'content': content,
        'stop_reason': reason,
        'stop_sequence': None,
        'usage': {'input_tokens': 100, 'output_tokens': 10},
    }


class Handler(BaseHTTPRequestHandler):
    """Handler of all endpoints."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers['content-length'])))
        answer = json.dumps(cast('Provider', self.server).answer(self.path.partition('?')[0], body)).encode()
        self.send_response(200)
        self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Generator[Provider]:
    monkeypatch.setattr(models, 'ALLOW_MODEL_REQUESTS', True)
    server = Provider()
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def summarization() -> Summarization:
    return Summarization(trigger=Messages(6), keep=Messages(2), summarizer='provider')


async def test_openai_compacts_and_receives_its_compaction(
    server: Provider, agent_of: Callable[..., Agent[Any, Any]], watch: Any
) -> None:
    model = OpenAIResponsesModel('gpt-5.2', provider=OpenAIProvider(base_url=f'{server.url}/v1', api_key=KEY))
    agent = agent_of(model, summarization(), text='secret of the first result')
    async with agent:
        result = await agent.run('go', event_stream_handler=None)
        assert result.output == 'done'
    paths = [path for path, _ in server.requests]
    assert paths == ['/v1/responses'] * 3 + ['/v1/responses/compact', '/v1/responses']
    compacted, last = server.requests[-2][1], server.requests[-1][1]
    assert [item.get('type', item.get('role')) for item in compacted['input']][:3] == [
        'user',
        'function_call',
        'function_call_output',
    ]
    kinds = [item.get('type', item.get('role')) for item in last['input']]
    assert kinds == ['compaction', 'function_call', 'function_call_output']
    assert last['input'][0]['encrypted_content'] == 'SEALED'
    assert 'pydantic_deep' not in json.dumps(last)
    messages = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(result.all_messages()))
    assert isinstance(messages[0], ModelResponse)
    assert isinstance(messages[0].parts[0], CompactionPart)
    assert 'secret of the first result' in str(replaced_messages(messages))
    assert result.usage.requests == 5


async def test_anthropic_compacts_and_receives_its_signed_compaction(
    server: Provider, agent_of: Callable[..., Agent[Any, Any]]
) -> None:
    provider = AnthropicProvider(base_url=server.url, api_key=KEY)
    model = AnthropicModel('claude-opus-5-5', provider=provider, settings=ModelSettings(max_tokens=1000))
    agent = agent_of(model, summarization())
    async with agent:
        result = await agent.run('go')
        assert result.output == 'done'
    compacted, last = server.requests[-2][1], server.requests[-1][1]
    assert 'compaction' in compacted
    assert [message['role'] for message in compacted['messages']][:3] == ['user', 'assistant', 'user']
    text = json.dumps(last['messages'])
    assert 'SIGNED' in text
    assert 'pydantic_deep' not in text
    blocks: list[Any] = [block for message in last['messages'] for block in message['content']]
    results = [each['tool_use_id'] for each in blocks if each['type'] == 'tool_result']
    calls = [each['id'] for each in blocks if each['type'] == 'tool_use']
    assert results == calls == ['c3']


@pytest.mark.parametrize('name', ['openai chat', 'google'])
async def test_provider_without_compaction_raises(name: str) -> None:
    model: Model = (
        OpenAIChatModel('gpt-5.2', provider=OpenAIProvider(api_key=KEY))
        if name == 'openai chat'
        else GoogleModel('gemini-2.5-pro', provider=GoogleProvider(api_key=KEY))
    )
    context = ModelRequestContext(
        model=model, messages=[], model_settings=None, model_request_parameters=ModelRequestParameters()
    )
    run = RunContext[object](deps=None, model=model, usage=RunUsage())
    with pytest.raises(NotImplementedError, match='compact'):
        await write_summary(run, context, [], 'provider', Written())
