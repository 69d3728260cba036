"""Anthropic messages, read by the official SDK: 004-27, 004-28, 004-34."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import Message

from pydantic_deep.streaming import (
    AnthropicEncoder,
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    FinishReason,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    UsageEvent,
    anthropic_error,
    anthropic_message,
)
from tests.streaming.conftest import waiting

pytestmark = pytest.mark.anyio

START = StartEvent(id='run-1', model='clerk')
USAGE = UsageEvent(input_tokens=10, output_tokens=4, cache_read_tokens=3, cache_write_tokens=2, requests=2)
APPROVAL = waiting('call-1', tool='pay', amount=1)
WAITING = [
    ApprovalRequiredEvent(approvals=[APPROVAL]),
    EndEvent(finish_reason='tool_call', status='awaiting_approval'),
]
HI: Any = [{'role': 'user', 'content': 'Hi'}]

Read = Callable[..., Any]


@pytest.fixture
def read_stream(serve_stream: Callable[[AnthropicEncoder, Sequence[StreamEvent]], httpx2.AsyncClient]) -> Read:
    async def read(events: Sequence[StreamEvent], **options: Any) -> tuple[Message, list[str]]:
        """Return the message assembled by the SDK, and the types of its events."""
        http = serve_stream(AnthropicEncoder(**options), events)
        async with (
            AsyncAnthropic(api_key='x', base_url='http://us.test', http_client=http, max_retries=0) as client,
            client.messages.stream(model='m', max_tokens=5, messages=HI) as stream,
        ):
            types = [event.type async for event in stream]
            return await stream.get_final_message(), types

    return read


@pytest.fixture
def read_message(serve_body: Callable[[dict[str, Any], int], httpx2.AsyncClient]) -> Read:
    async def read(body: dict[str, Any], status: int = 200) -> Message:
        http = serve_body(body, status)
        async with AsyncAnthropic(api_key='x', base_url='http://us.test', http_client=http, max_retries=0) as client:
            return await client.messages.create(model='m', max_tokens=5, messages=HI)

    return read


def both(events: Sequence[StreamEvent], **options: Any) -> tuple[Sequence[StreamEvent], dict[str, Any]]:
    return events, anthropic_message(events, **options)


async def test_text_is_streamed_in_one_block(read_stream: Read) -> None:
    events = [START, TextEvent(text='Hel'), TextEvent(text='lo'), EndEvent(status='complete')]
    message, types = await read_stream(events)
    assert [block.model_dump(exclude_none=True) for block in message.content] == [{'type': 'text', 'text': 'Hello'}]
    assert (message.id, message.model, message.role, message.stop_reason) == ('run-1', 'clerk', 'assistant', 'end_turn')
    assert [each for each in types if each != 'text'] == [
        'message_start',
        'content_block_start',
        'content_block_delta',
        'content_block_delta',
        'content_block_stop',
        'message_delta',
        'message_stop',
    ]


async def test_caller_can_set_id_and_model_of_the_message(read_stream: Read, read_message: Read) -> None:
    streamed, _ = await read_stream([START, EndEvent()], id='msg_9', model='claude')
    whole = await read_message(anthropic_message([START, EndEvent()], id='msg_9', model='claude'))
    assert (streamed.id, streamed.model) == (whole.id, whole.model) == ('msg_9', 'claude')
    assert streamed.content == whole.content == []


async def test_id_and_model_of_a_message_have_defaults(read_stream: Read) -> None:
    message, _ = await read_stream([TextEvent(text='x'), EndEvent()])
    assert (message.id, message.model) == ('msg', 'agent')


async def test_usage_excludes_cached_tokens_from_input(read_stream: Read, read_message: Read) -> None:
    events, body = both([START, TextEvent(text='Hi'), USAGE, EndEvent()])
    streamed, _ = await read_stream(events)
    whole = await read_message(body)
    for usage in (streamed.usage, whole.usage):
        assert (usage.input_tokens, usage.output_tokens) == (5, 4)
        assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (3, 2)


@pytest.mark.parametrize(
    ('reason', 'encoded'), [('stop', 'end_turn'), ('length', 'max_tokens'), ('content_filter', 'refusal')]
)
async def test_stop_reason_is_encoded(
    read_stream: Read, read_message: Read, reason: FinishReason, encoded: str
) -> None:
    events, body = both([START, TextEvent(text='Hi'), EndEvent(finish_reason=reason)])
    assert (await read_stream(events))[0].stop_reason == encoded
    assert (await read_message(body)).stop_reason == encoded


async def test_approval_is_a_tool_use_after_the_text(read_stream: Read, read_message: Read) -> None:
    """C24 on the wire."""
    events, body = both([START, TextEvent(text='May I?'), *WAITING])
    streamed, _ = await read_stream(events)
    whole = await read_message(body)
    for message in (streamed, whole):
        text, call = message.content
        assert text.text == 'May I?'
        assert (call.type, call.id, call.name) == ('tool_use', 'call-1', 'approval_required')
        assert call.input == {
            'approval_id': 'call-1', 'tool': 'pay', 'arguments': {'amount': 1}, 'path': [],
            'view': APPROVAL.view.model_dump(mode='json'),
        }  # fmt: skip
        assert message.stop_reason == 'tool_use'


async def test_text_between_calls_is_a_separate_block(read_stream: Read) -> None:
    """Proxied streams have Anthropic's blocks (004-34)."""
    call = ToolCallEvent(id='c', name='look', args='{"n": 1}')
    events = [START, TextEvent(text='A'), call, TextEvent(text='B'), EndEvent(finish_reason='tool_call')]
    message, _ = await read_stream(events, tool_calls=True)
    assert [block.type for block in message.content] == ['text', 'tool_use', 'text']
    assert message.content[1].input == {'n': 1}


async def test_arguments_that_are_not_a_json_object_are_wrapped(read_message: Read) -> None:
    calls = [ToolCallEvent(id='c', name='look', args=args) for args in ('{"n": ', '12', '')]
    body = anthropic_message([START, *calls, EndEvent(finish_reason='tool_call')], tool_calls=True)
    message = await read_message(body)
    assert [block.input for block in message.content] == [{'INVALID_JSON': '{"n": '}, {'INVALID_JSON': '12'}, {}]


async def test_an_error_in_a_stream_is_raised_by_the_sdk(read_stream: Read) -> None:
    error = ErrorEvent(kind='limit_exceeded', message='Too many requests.', status=429)
    with pytest.raises(anthropic.APIStatusError, match=r'Too many requests\.'):
        await read_stream([START, TextEvent(text='Hi'), error, EndEvent(finish_reason='error', status='failed')])


async def test_failed_stream_has_no_message_stop() -> None:
    encoder = AnthropicEncoder()
    encoded = encoder.encode(ErrorEvent(kind='run_failed', message='No.'))
    assert [frame.event for frame in encoded] == ['error']
    assert encoder.finish() == []


@pytest.mark.parametrize(
    ('status', 'kind'),
    [
        (429, 'rate_limit_error'),
        (503, 'overloaded_error'),
        (504, 'timeout_error'),
        (422, 'invalid_request_error'),
        (502, 'api_error'),
        (None, 'api_error'),
    ],
)
async def test_error_type_depends_on_its_status(status: int | None, kind: str) -> None:
    body = anthropic_error(ErrorEvent(kind='k', message='No.', status=status))
    assert body == {'type': 'error', 'error': {'type': kind, 'message': 'No.'}}


async def test_error_without_a_stream_is_raised_by_the_sdk(read_message: Read) -> None:
    body = anthropic_message([START, ErrorEvent(kind='limit_exceeded', message='Too many.', status=429)])
    with pytest.raises(anthropic.RateLimitError, match='Too many'):
        await read_message(body, 429)


async def test_signed_thinking_is_emitted_on_request(read_stream: Read, read_message: Read) -> None:
    events = [
        START,
        ThinkingEvent(text='H'),
        ThinkingEvent(text='m'),
        ThinkingEvent(text='', signature='sig'),
        TextEvent(text='Hi'),
        EndEvent(),
    ]
    streamed, _ = await read_stream(events, thinking=True)
    whole = await read_message(anthropic_message(events, thinking=True))
    for message in (streamed, whole):
        thought, text = message.content
        assert (thought.thinking, thought.signature, text.text) == ('Hm', 'sig', 'Hi')
    assert 'thinking' not in str(anthropic_message(events))


async def test_unsigned_thinking_is_omitted(read_stream: Read) -> None:
    """Anthropic accepts no unsigned thinking in later requests."""
    events = [
        START,
        ThinkingEvent(text='unsigned'),
        TextEvent(text='Hi'),
        ThinkingEvent(text='Hm', signature='sig'),
        EndEvent(),
    ]
    message, _ = await read_stream(events, thinking=True)
    assert [getattr(block, 'thinking', None) for block in message.content] == [None, 'Hm']
    assert 'unsigned' not in str(anthropic_message(events[:3] + events[4:], thinking=True))
