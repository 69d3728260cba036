"""Chat completions, read by the official SDK: 004-27."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from pydantic_deep.streaming import (
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    FinishReason,
    OpenaiEncoder,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    UsageEvent,
    openai_completion,
    openai_error,
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


def calls_of(chunks: Any) -> list[Any]:
    found: list[Any] = []
    for chunk in chunks:
        found += chunk.choices[0].delta.tool_calls or []
    return found


Chunks = Callable[..., Any]
Completion = Callable[..., Any]


@pytest.fixture
def read_chunks(serve_stream: Callable[[OpenaiEncoder, Sequence[StreamEvent]], httpx2.AsyncClient]) -> Chunks:
    async def read(events: Sequence[StreamEvent], **options: Any) -> list[ChatCompletionChunk]:
        http = serve_stream(OpenaiEncoder(created=1, **options), events)
        async with AsyncOpenAI(api_key='x', base_url='http://us.test', http_client=http, max_retries=0) as client:
            stream = await client.chat.completions.create(model='m', messages=[], stream=True)
            return [chunk async for chunk in stream]

    return read


@pytest.fixture
def read_completion(serve_body: Callable[[dict[str, Any], int], httpx2.AsyncClient]) -> Completion:
    async def read(body: dict[str, Any], status: int = 200) -> ChatCompletion:
        http = serve_body(body, status)
        async with AsyncOpenAI(api_key='x', base_url='http://us.test', http_client=http, max_retries=0) as client:
            return await client.chat.completions.create(model='m', messages=[])

    return read


async def test_text_is_streamed_in_chunks(read_chunks: Chunks) -> None:
    chunks = await read_chunks([START, TextEvent(text='Hel'), TextEvent(text='lo'), EndEvent(status='complete')])
    assert [chunk.choices[0].delta.content for chunk in chunks] == ['', 'Hel', 'lo', None]
    assert chunks[0].choices[0].delta.role == 'assistant'
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, 'stop']
    assert {(chunk.id, chunk.model, chunk.created, chunk.object) for chunk in chunks} == {
        ('run-1', 'clerk', 1, 'chat.completion.chunk')
    }


async def test_caller_can_set_id_and_model_of_the_answer(read_chunks: Chunks) -> None:
    [first, *_] = await read_chunks([START, EndEvent()], id='chatcmpl-9', model='gpt')
    assert (first.id, first.model) == ('chatcmpl-9', 'gpt')


async def test_id_and_model_of_an_answer_have_defaults(read_chunks: Chunks) -> None:
    [first, *_] = await read_chunks([TextEvent(text='x'), EndEvent()])
    assert (first.id, first.model) == ('chatcmpl', 'agent')


async def test_usage_comes_last_and_only_on_request(read_chunks: Chunks) -> None:
    events = [START, USAGE, TextEvent(text='Hi'), EndEvent()]
    *before, last = await read_chunks(events, include_usage=True)
    assert last.choices == []
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (10, 4, 14)
    assert last.usage.prompt_tokens_details.cached_tokens == 3
    assert [chunk.usage for chunk in before] == [None, None, None]
    assert [chunk.usage for chunk in await read_chunks(events)] == [None, None, None]


@pytest.mark.parametrize(
    ('reason', 'encoded'), [('stop', 'stop'), ('length', 'length'), ('content_filter', 'content_filter')]
)
async def test_finish_reason_is_encoded(
    read_chunks: Chunks, read_completion: Completion, reason: FinishReason, encoded: str
) -> None:
    events = [START, TextEvent(text='Hi'), EndEvent(finish_reason=reason)]
    assert (await read_chunks(events))[-1].choices[0].finish_reason == encoded
    assert (await read_completion(openai_completion(events))).choices[0].finish_reason == encoded


async def test_approval_is_a_tool_call_for_the_client(read_chunks: Chunks, read_completion: Completion) -> None:
    """C24 on the wire."""
    events = [START, TextEvent(text='May I?'), *WAITING]
    chunks = await read_chunks(events)
    [streamed] = calls_of(chunks)
    [choice] = (await read_completion(openai_completion(events))).choices
    [call] = choice.message.tool_calls
    assert chunks[-1].choices[0].finish_reason == choice.finish_reason == 'tool_calls'
    assert streamed.index == 0
    assert (streamed.id, streamed.function.name) == (call.id, call.function.name) == ('call-1', 'approval_required')
    assert json.loads(streamed.function.arguments) == json.loads(call.function.arguments) == {
        'approval_id': 'call-1', 'tool': 'pay', 'arguments': {'amount': 1}, 'path': [],
            'view': APPROVAL.view.model_dump(mode='json'),
    }  # fmt: skip
    assert choice.message.content == 'May I?'


async def test_sdk_assembles_proxied_calls(
    serve_stream: Callable[[OpenaiEncoder, Sequence[StreamEvent]], httpx2.AsyncClient],
) -> None:
    """Calls of a proxied provider are numbered."""
    calls = [ToolCallEvent(id=f'c{n}', name='look', args=f'{{"n":{n}}}') for n in range(2)]
    http = serve_stream(OpenaiEncoder(tool_calls=True), [START, *calls, EndEvent(finish_reason='tool_call')])
    async with (
        AsyncOpenAI(api_key='x', base_url='http://us.test', http_client=http) as client,
        client.chat.completions.stream(model='m', messages=[]) as stream,
    ):
        completion = await stream.get_final_completion()
    encoded = completion.choices[0].message.tool_calls or []
    assert [(call.id, call.function.arguments) for call in encoded] == [('c0', '{"n":0}'), ('c1', '{"n":1}')]


async def test_an_error_in_a_stream_is_raised_by_the_sdk(read_chunks: Chunks) -> None:
    error = ErrorEvent(kind='limit_exceeded', message='Too many requests.', status=429)
    with pytest.raises(openai.APIError, match=r'Too many requests\.') as caught:
        await read_chunks([START, TextEvent(text='Hi'), error, EndEvent(finish_reason='error', status='failed')])
    assert (caught.value.code, caught.value.type) == ('limit_exceeded', 'rate_limit_error')


async def test_failed_stream_is_not_done() -> None:
    encoder = OpenaiEncoder()
    encoder.encode(ErrorEvent(kind='run_failed', message='No.'))
    assert encoder.finish() == []


@pytest.mark.parametrize(
    ('status', 'kind'), [(429, 'rate_limit_error'), (422, 'invalid_request_error'), (None, 'server_error')]
)
async def test_error_type_depends_on_its_status(status: int | None, kind: str) -> None:
    body = openai_error(ErrorEvent(kind='k', message='No.', status=status))
    assert body == {'error': {'message': 'No.', 'type': kind, 'param': None, 'code': 'k'}}


async def test_error_without_a_stream_is_raised_by_the_sdk(read_completion: Completion) -> None:
    events = [START, ErrorEvent(kind='limit_exceeded', message='Too many.', status=429)]
    with pytest.raises(openai.RateLimitError, match='Too many'):
        await read_completion(openai_completion(events), 429)


async def test_answer_is_complete_without_a_stream(read_completion: Completion) -> None:
    completion = await read_completion(
        openai_completion([START, USAGE, TextEvent(text='Hi'), EndEvent()], id='i', model='m', created=5)
    )
    assert completion.choices[0].message.content == 'Hi'
    assert completion.choices[0].message.tool_calls is None
    assert completion.usage.total_tokens == 14
    assert (completion.id, completion.model, completion.created, completion.object) == ('i', 'm', 5, 'chat.completion')


async def test_answer_without_text_has_no_content(read_completion: Completion) -> None:
    completion = await read_completion(openai_completion([START, *WAITING]))
    assert completion.choices[0].message.content is None
    assert completion.created > 1_700_000_000


async def test_thinking_is_emitted_on_request(read_chunks: Chunks) -> None:
    events = [
        START,
        ThinkingEvent(text='H'),
        ThinkingEvent(text='m'),
        ThinkingEvent(text='', signature='s'),
        EndEvent(),
    ]
    chunks = await read_chunks(events, thinking=True)
    encoded = [getattr(chunk.choices[0].delta, 'reasoning_content', None) for chunk in chunks]
    assert encoded == [None, 'H', 'm', None]
    message: Any = openai_completion(events, thinking=True)['choices']
    assert message[0]['message']['reasoning_content'] == 'Hm'
    assert 'Hm' not in json.dumps(openai_completion(events))
