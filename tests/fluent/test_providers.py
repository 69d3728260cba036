"""Transcripts under another provider: provider-specific data is preserved, and other adapters omit it.

The adapters are real; the transport answers with streams as documented by the two APIs.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from pydantic_ai import Agent, models
from pydantic_ai.messages import (
    CompactionPart,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from pydantic_deep.fluent import Conversation, MessageList

from .conftest import Begin, Told

pytestmark = pytest.mark.anyio

SIGNATURE, SECRET = 'EqQBCkYIARgC-signature', 'gAAAAABk-encrypted'


class Provider:
    """A transport that records requests and answers with a stream."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._body = ''.join(f'event: {event["type"]}\ndata: {json.dumps(event)}\n\n' for event in events)
        self.client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(json.loads(request.content))
        return httpx2.Response(200, headers={'content-type': 'text/event-stream'}, text=self._body)

    @property
    def sent(self) -> str:
        """The last request."""
        return json.dumps(self.requests[-1])


@pytest.fixture(autouse=True)
def transport_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow model requests: the mock transport does not reach the network."""
    monkeypatch.setattr(models, 'ALLOW_MODEL_REQUESTS', True)


@pytest.fixture
def anthropic() -> Provider:
    usage = {'input_tokens': 1, 'output_tokens': 1}
    message: dict[str, Any] = {
        'id': 'msg_1', 'type': 'message', 'role': 'assistant', 'model': 'claude-opus-5-5', 'content': [],
        'stop_reason': None, 'stop_sequence': None, 'usage': usage,
    }  # fmt: skip
    thinking = {'type': 'thinking', 'thinking': '', 'signature': ''}
    return Provider(
        {'type': 'message_start', 'message': message},
        {'type': 'content_block_start', 'index': 0, 'content_block': thinking},
        {'type': 'content_block_delta', 'index': 0, 'delta': {'type': 'thinking_delta', 'thinking': 'Two and two.'}},
        {'type': 'content_block_delta', 'index': 0, 'delta': {'type': 'signature_delta', 'signature': SIGNATURE}},
        {'type': 'content_block_stop', 'index': 0},
        {'type': 'content_block_start', 'index': 1, 'content_block': {'type': 'text', 'text': ''}},
        {'type': 'content_block_delta', 'index': 1, 'delta': {'type': 'text_delta', 'text': 'Four.'}},
        {'type': 'content_block_stop', 'index': 1},
        {'type': 'message_delta', 'delta': {'stop_reason': 'end_turn', 'stop_sequence': None}, 'usage': usage},
        {'type': 'message_stop'},
    )


@pytest.fixture
def openai() -> Provider:
    text: dict[str, Any] = {'type': 'output_text', 'text': 'Six.', 'annotations': []}
    reasoning: dict[str, Any] = {'type': 'reasoning', 'id': 'rs_1', 'summary': [], 'encrypted_content': SECRET}
    message: dict[str, Any] = {
        'type': 'message',
        'id': 'msg_2',
        'role': 'assistant',
        'status': 'completed',
        'content': [text],
    }
    response: dict[str, Any] = {
        'id': 'resp_1', 'object': 'response', 'created_at': 1, 'model': 'gpt-5.2', 'output': [], 'tools': [],
        'parallel_tool_calls': True, 'tool_choice': 'auto', 'status': 'in_progress',
    }  # fmt: skip
    usage = {
        'input_tokens': 1, 'output_tokens': 1, 'total_tokens': 2,
        'input_tokens_details': {'cached_tokens': 0}, 'output_tokens_details': {'reasoning_tokens': 0},
    }  # fmt: skip
    done = {**response, 'status': 'completed', 'output': [reasoning, message], 'usage': usage}
    opened: dict[str, Any] = {**message, 'status': 'in_progress', 'content': []}
    place = {'item_id': 'msg_2', 'output_index': 1, 'content_index': 0}
    events: list[dict[str, Any]] = [
        {'type': 'response.created', 'response': response},
        {'type': 'response.output_item.added', 'output_index': 0, 'item': reasoning},
        {'type': 'response.output_item.done', 'output_index': 0, 'item': reasoning},
        {'type': 'response.output_item.added', 'output_index': 1, 'item': opened},
        {'type': 'response.content_part.added', **place, 'part': {**text, 'text': ''}},
        {'type': 'response.output_text.delta', **place, 'delta': 'Six.', 'logprobs': []},
        {'type': 'response.output_text.done', **place, 'text': 'Six.', 'logprobs': []},
        {'type': 'response.content_part.done', **place, 'part': text},
        {'type': 'response.output_item.done', 'output_index': 1, 'item': message},
        {'type': 'response.completed', 'response': done},
    ]
    return Provider(*({**event, 'sequence_number': number} for number, event in enumerate(events)))


def claude(provider: Provider) -> AnthropicModel:
    return AnthropicModel('claude-opus-5-5', provider=AnthropicProvider(api_key='no-key', http_client=provider.client))


def gpt(provider: Provider) -> OpenAIResponsesModel:
    return OpenAIResponsesModel('gpt-5.2', provider=OpenAIProvider(api_key='no-key', http_client=provider.client))


def bound(messages: MessageList) -> list[tuple[str | None, str | None]]:
    """Return the provider and the signature of each provider-specific part."""
    parts = [part for message in messages for part in message.parts if isinstance(part, ThinkingPart)]
    return [(part.provider_name, part.signature) for part in parts]


async def test_signatures_are_preserved_and_not_sent_to_other_providers(
    begin: Begin, anthropic: Provider, openai: Provider, told: Told
) -> None:
    """001-06: A serialized conversation works with any provider and any model.

    C31: one conversation under two providers and back, saved and loaded in between; each receives the full history.
    """
    agent = Agent[object, str](None)
    conversation = begin(agent).model(claude(anthropic)).user('What is 2 + 2?').start()
    assert await conversation.run() == 'Four.'
    assert bound(conversation.messages) == [('anthropic', SIGNATURE)]

    loaded = MessageList.from_dict(json.loads(json.dumps(conversation.messages.to_dict())))
    elsewhere = begin(agent).model(gpt(openai)).start()
    elsewhere.messages.extend(loaded)
    assert await elsewhere.continuation.user('Plus 2?').prompt() == 'Six.'
    assert SIGNATURE not in openai.sent
    assert 'Four.' in openai.sent
    assert bound(elsewhere.messages) == [('anthropic', SIGNATURE), ('openai', SECRET)]

    loaded = MessageList.from_dict(json.loads(json.dumps(elsewhere.messages.to_dict())))
    back = begin(agent).model(claude(anthropic)).start()
    back.messages.extend(loaded)
    await back.continuation.user('And?').prompt()
    assert SIGNATURE in anthropic.sent
    assert SECRET not in anthropic.sent
    assert all(said in anthropic.sent for said in ('What is 2 + 2?', 'Plus 2?', 'Six.', 'And?'))
    assert bound(back.messages)[:2] == [('anthropic', SIGNATURE), ('openai', SECRET)]


async def test_encrypted_summary_is_not_sent_to_another_provider(anthropic: Provider) -> None:
    """C31: Data that only one provider can read is not sent to another, and the transcript preserves it."""
    sealed = CompactionPart(id='cmp_1', provider_name='openai', provider_details={'encrypted_content': SECRET})
    history = [
        ModelRequest([UserPromptPart('Hello')]),
        ModelResponse([sealed, TextPart('Hi.')], provider_name='openai'),
    ]
    conversation = Conversation(history, agent=Agent[object, str](claude(anthropic)))
    await conversation.continuation.user('What is 2 + 2?').prompt()
    assert SECRET not in anthropic.sent
    assert SECRET in json.dumps(conversation.messages.to_dict())


async def test_calls_of_unknown_tools_are_sent_as_history(begin: Begin, anthropic: Provider) -> None:
    """001-06, 001-22: A history is valid under an agent without any of its tools."""
    conversation = begin(Agent[object, str](claude(anthropic))).start()
    conversation.messages.extend(
        [
            ModelRequest([UserPromptPart('What is in the box?')]),
            ModelResponse([ToolCallPart('look', '{"where": "box"}', 'call-1')], provider_name='openai'),
            ModelRequest([ToolReturnPart('look', 'A cat', 'call-1')]),
            ModelResponse([TextPart('A cat.')], provider_name='openai'),
        ]
    )
    assert await conversation.continuation.user('Sure?').prompt() == 'Four.'
    assert not anthropic.requests[0].get('tools')
    kinds = [
        block['type']
        for message in anthropic.requests[0]['messages']
        if isinstance(message['content'], list)
        for block in message['content']
    ]
    assert [kind for kind in kinds if kind.startswith('tool')] == ['tool_use', 'tool_result']


async def test_injected_assistant_message_is_sent_with_the_assistant_role(begin: Begin, anthropic: Provider) -> None:
    """001-01: Messages of the assistant are injected in the provider's request too."""
    agent = Agent[object, str](claude(anthropic))
    await begin(agent).user('Who are you?').assistant('  A pirate.  ').user('What is 2 + 2?').prompt()
    roles = [(message['role'], message['content'][0]['text']) for message in anthropic.requests[0]['messages']]
    assert roles == [('user', 'Who are you?'), ('assistant', 'A pirate.'), ('user', 'What is 2 + 2?')]
