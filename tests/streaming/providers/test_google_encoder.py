"""Google contents, read by the official SDK: 004-27, 004-28, 004-34."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import pytest
from google.genai import Client
from google.genai.errors import APIError
from google.genai.types import GenerateContentResponse, HttpOptions

from pydantic_deep.streaming import (
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    FinishReason,
    GoogleEncoder,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    UsageEvent,
    google_error,
    google_response,
)
from tests.streaming.conftest import waiting

pytestmark = pytest.mark.anyio

START = StartEvent(id='run-1', model='clerk')
USAGE = UsageEvent(input_tokens=10, output_tokens=4, cache_read_tokens=3, requests=2)
APPROVAL = waiting('call-1', tool='pay', amount=1)
WAITING = [
    ApprovalRequiredEvent(approvals=[APPROVAL]),
    EndEvent(finish_reason='tool_call', status='awaiting_approval'),
]

Read = Callable[..., Any]


def calls_of(chunks: Any) -> list[Any]:
    found: list[Any] = []
    for chunk in chunks:
        found += chunk.function_calls or []
    return found


def client_of(http: httpx2.AsyncClient) -> Client:
    return Client(api_key='x', http_options=HttpOptions(base_url='http://us.test', httpx_async_client=http))


@pytest.fixture
def read_chunks(serve_stream: Callable[[GoogleEncoder, Sequence[StreamEvent]], httpx2.AsyncClient]) -> Read:
    async def read(events: Sequence[StreamEvent], **options: Any) -> list[GenerateContentResponse]:
        client = client_of(serve_stream(GoogleEncoder(**options), events))
        try:
            # Its type refers to PIL images, which is not installed.
            stream = await client.aio.models.generate_content_stream(model='m', contents='Hi')  # pyright: ignore[reportUnknownMemberType]
            return [chunk async for chunk in stream]
        finally:
            await client.aio.aclose()
            client.close()

    return read


@pytest.fixture
def read_response(serve_body: Callable[[dict[str, Any], int], httpx2.AsyncClient]) -> Read:
    async def read(body: dict[str, Any], status: int = 200) -> GenerateContentResponse:
        client = client_of(serve_body(body, status))
        try:
            return await client.aio.models.generate_content(model='m', contents='Hi')  # pyright: ignore[reportUnknownMemberType] - as above
        finally:
            await client.aio.aclose()
            client.close()

    return read


async def test_text_is_streamed_in_chunks(read_chunks: Read) -> None:
    chunks = await read_chunks([START, TextEvent(text='Hel'), TextEvent(text='lo'), EndEvent(status='complete')])
    assert [chunk.text for chunk in chunks] == ['Hel', 'lo', '']
    assert [chunk.candidates[0].finish_reason for chunk in chunks] == [None, None, 'STOP']
    assert {(chunk.response_id, chunk.model_version) for chunk in chunks} == {('run-1', 'clerk')}


async def test_caller_can_set_id_and_model_of_the_answer(read_chunks: Read, read_response: Read) -> None:
    [chunk] = await read_chunks([START, EndEvent()], id='i', model='gemini')
    whole = await read_response(google_response([START, EndEvent()], id='i', model='gemini'))
    assert (chunk.response_id, chunk.model_version) == (whole.response_id, whole.model_version) == ('i', 'gemini')


async def test_id_and_model_of_an_answer_have_defaults(read_chunks: Read) -> None:
    [first, *_] = await read_chunks([TextEvent(text='x'), EndEvent()])
    assert (first.response_id, first.model_version) == ('response', 'agent')


async def test_usage_is_encoded(read_chunks: Read, read_response: Read) -> None:
    events = [START, TextEvent(text='Hi'), USAGE, EndEvent()]
    streamed = (await read_chunks(events))[-1]
    whole = await read_response(google_response(events))
    for usage in (streamed.usage_metadata, whole.usage_metadata):
        assert (usage.prompt_token_count, usage.candidates_token_count, usage.total_token_count) == (10, 4, 14)
        assert usage.cached_content_token_count == 3


@pytest.mark.parametrize(
    ('reason', 'encoded'), [('stop', 'STOP'), ('length', 'MAX_TOKENS'), ('content_filter', 'SAFETY')]
)
async def test_finish_reason_is_encoded(
    read_chunks: Read, read_response: Read, reason: FinishReason, encoded: str
) -> None:
    events = [START, TextEvent(text='Hi'), EndEvent(finish_reason=reason)]
    assert (await read_chunks(events))[-1].candidates[0].finish_reason == encoded
    assert (await read_response(google_response(events))).candidates[0].finish_reason == encoded


async def test_approval_is_a_function_call(read_chunks: Read, read_response: Read) -> None:
    """C24 on the wire."""
    events = [START, TextEvent(text='May I?'), *WAITING]
    chunks = await read_chunks(events)
    whole = await read_response(google_response(events))
    for calls in (calls_of(chunks), calls_of([whole])):
        [call] = calls
        assert (call.id, call.name) == ('call-1', 'approval_required')
        assert call.args == {
            'approval_id': 'call-1', 'tool': 'pay', 'arguments': {'amount': 1}, 'path': [],
            'view': APPROVAL.view.model_dump(mode='json'),
        }  # fmt: skip
    assert chunks[-1].candidates[0].finish_reason == 'STOP'
    assert whole.candidates[0].content.parts[0].text == 'May I?'


async def test_provider_calls_are_passed_on(read_chunks: Read) -> None:
    call = ToolCallEvent(id='c', name='look', args='{"n": 1}')
    chunks = await read_chunks([START, call, EndEvent(finish_reason='tool_call')], tool_calls=True)
    assert [(call.name, call.args) for call in calls_of(chunks)] == [('look', {'n': 1})]


async def test_an_error_in_a_stream_is_raised_by_the_sdk(read_chunks: Read) -> None:
    error = ErrorEvent(kind='limit_exceeded', message='Too many requests.', status=429)
    with pytest.raises(APIError, match=r'Too many requests\.') as caught:
        await read_chunks([START, TextEvent(text='Hi'), error, EndEvent(finish_reason='error', status='failed')])
    assert caught.value.code == 429


async def test_failed_stream_has_no_end() -> None:
    encoder = GoogleEncoder()
    assert len(encoder.encode(ErrorEvent(kind='run_failed', message='No.'))) == 1
    assert encoder.finish() == []


@pytest.mark.parametrize(
    ('status', 'code', 'name'),
    [
        (429, 429, 'RESOURCE_EXHAUSTED'),
        (503, 503, 'UNAVAILABLE'),
        (504, 504, 'DEADLINE_EXCEEDED'),
        (422, 422, 'INVALID_ARGUMENT'),
        (None, 500, 'INTERNAL'),
    ],
)
async def test_error_name_depends_on_its_status(status: int | None, code: int, name: str) -> None:
    body = google_error(ErrorEvent(kind='k', message='No.', status=status))
    assert body == {'error': {'code': code, 'message': 'No.', 'status': name}}


async def test_error_without_a_stream_is_raised_by_the_sdk(read_response: Read) -> None:
    body = google_response([START, ErrorEvent(kind='limit_exceeded', message='Too many.', status=429)])
    with pytest.raises(APIError, match='Too many'):
        await read_response(body, 429)


async def test_thinking_is_emitted_on_request(read_chunks: Read, read_response: Read) -> None:
    signature = base64.b64encode(b'sig').decode()
    events = [START, ThinkingEvent(text='Hm', signature=signature), TextEvent(text='Hi'), EndEvent()]
    chunks = await read_chunks(events, thinking=True)
    whole = await read_response(google_response(events, thinking=True))
    streamed = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    for parts in (streamed, whole.candidates[0].content.parts):
        assert (parts[0].text, parts[0].thought, parts[0].thought_signature) == ('Hm', True, b'sig')
    assert [part.thought for chunk in await read_chunks(events) for part in chunk.candidates[0].content.parts] == [
        None,
        None,
    ]
