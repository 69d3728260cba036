"""`HybridResponse` decodes a provider's stream and passes it on at the same time, for any provider."""

from __future__ import annotations

import json
import logging
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx
import httpx2
import pytest
from anthropic import APIStatusError, AsyncAnthropic
from google.genai import Client
from google.genai.errors import UnknownApiResponseError
from google.genai.types import HttpOptions
from openai import APIError, AsyncOpenAI

from pydantic_deep.streaming import (
    STREAM_EVENTS,
    AnthropicDecoder,
    Decoder,
    EndEvent,
    ErrorEvent,
    Frame,
    FrameReader,
    FunctionCall,
    GoogleDecoder,
    HybridResponse,
    OpenaiDecoder,
    StreamEvent,
    StreamingResponse,
    TextEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    UsageEvent,
    render_frame,
)

pytestmark = pytest.mark.anyio
STREAMS = Path(__file__).parents[1] / 'streams'
DECODERS: dict[str, Callable[[], Decoder]] = {
    'openai': OpenaiDecoder,
    'anthropic': AnthropicDecoder,
    'google': GoogleDecoder,
}
CALLS = {
    'openai_tools_interleaved': ['call_paris', 'call_rome'],
    'anthropic_tools': ['toolu_01', 'toolu_02'],
    'anthropic_interleaved': ['toolu_01', 'toolu_02'],
    'google_tools': ['mAitaLmkHPPlz7IPvtfUqQ4-0', 'call-rome', 'mAitaLmkHPPlz7IPvtfUqQ4-2'],
}


@dataclass
class Upstream:
    """The chunks of a body, with a record of how they were read."""

    chunks: Sequence[bytes]
    failure: Exception | None = None
    waits: bool = False
    """Whether it blocks after the last chunk instead of ending."""
    taken: int = 0
    is_closed: bool = False
    waiting: anyio.Event = field(default_factory=anyio.Event)

    async def read(self) -> AsyncGenerator[bytes]:
        try:
            for chunk in self.chunks:
                self.taken += 1
                yield chunk
            if self.failure:
                raise self.failure
            if self.waits:
                self.waiting.set()
                await anyio.sleep_forever()
        finally:
            self.is_closed = True


async def chunks_of(*chunks: bytes) -> AsyncGenerator[bytes]:
    for chunk in chunks:
        yield chunk


def stream(name: str) -> bytes:
    return (STREAMS / f'{name}.sse').read_bytes()


def wrap(name: str) -> HybridResponse:
    return HybridResponse(chunks_of(stream(name)), DECODERS[name.split('_')[0]]())


def openai(*deltas: dict[str, str], end: bool = True) -> list[bytes]:
    """Return the bytes of each frame."""
    frames = [f'data: {json.dumps({"choices": [{"delta": delta}]})}\n\n'.encode() for delta in deltas]
    return [*frames, b'data: [DONE]\n\n'] if end else frames


async def lines_of(response: HybridResponse, *, function_calls: bool = False) -> list[Frame]:
    text = ''.join([line async for line in response.iter_lines(function_calls=function_calls)])
    return FrameReader().feed(text.encode())


async def events_of(response: HybridResponse) -> list[StreamEvent]:
    return [event async for event in response]


async def test_http_response_is_wrapped() -> None:
    """004-13, 004-16: content and calls are available after the stream has ended, and the connection is closed."""

    class Body(httpx.AsyncByteStream):
        is_closed = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            whole = stream('openai_tools_interleaved')
            for start in range(0, len(whole), 11):
                yield whole[start : start + 11]

        async def aclose(self) -> None:
            self.is_closed = True

    body = Body()
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=body))) as client:
        upstream = await client.send(client.build_request('POST', 'http://provider.test'), stream=True)
        assert isinstance(upstream, StreamingResponse)
        async with HybridResponse(upstream, OpenaiDecoder()) as response:
            events = await events_of(response)
            assert body.is_closed

    assert events[-1] == EndEvent(finish_reason='tool_call')
    assert await response.content() == 'Let me look.'
    assert response.tool_calls == [
        FunctionCall(id='call_paris', name='get_weather', arguments='{"city":"Paris"}'),
        FunctionCall(id='call_rome', name='get_weather', arguments='{"city":"Rome"}'),
    ]
    assert [call.parsed() for call in response.tool_calls] == [{'city': 'Paris'}, {'city': 'Rome'}]
    assert response.usage == UsageEvent(input_tokens=80, output_tokens=40, requests=1)
    assert (response.status, response.finish_reason, response.error) == (200, 'tool_call', None)


@pytest.mark.parametrize(
    'name', sorted(path.stem for path in STREAMS.glob('*_*.sse') if 'error' not in path.stem and 'tr' not in path.stem)
)
async def test_lines_contain_the_text_but_no_calls(name: str) -> None:
    """004-14, 004-27: for every provider, calls are removed and collected without losing text."""
    decoder = DECODERS[name.split('_')[0]]
    whole = wrap(name)
    await events_of(whole)
    passed = HybridResponse(chunks_of(*[render_frame(f).encode() for f in await lines_of(wrap(name))]), decoder())
    received = await events_of(passed)

    assert await passed.content() == await whole.content()
    assert [event for event in received if isinstance(event, ToolCallDeltaEvent | ToolCallEvent)] == []
    assert passed.usage == whole.usage


@pytest.mark.parametrize('name', sorted(path.stem for path in STREAMS.glob('*.sse')))
async def test_hybrid_response_does_not_depend_on_chunk_boundaries(name: str) -> None:
    """004-13: single-byte chunks, splitting characters and line ends, give the same events and lines."""
    chunks = [bytes([byte]) for byte in stream(name)]
    decoder = DECODERS[name.split('_')[0]]

    assert await events_of(HybridResponse(chunks_of(*chunks), decoder())) == await events_of(wrap(name))
    assert await lines_of(HybridResponse(chunks_of(*chunks), decoder())) == await lines_of(wrap(name))


@pytest.mark.parametrize('name', ['openai_usage_null', 'anthropic_text', 'anthropic_server_tools', 'google_text'])
async def test_frames_without_calls_are_passed_on_unchanged(name: str) -> None:
    sent = FrameReader().feed(stream(name))

    assert await lines_of(wrap(name)) == sent


@pytest.mark.parametrize('name', CALLS)
async def test_complete_calls_are_emitted_on_request(name: str) -> None:
    """004-15: `event: function_call`, in the order of the answer (004-31), before the end."""
    response = wrap(name)
    frames = await lines_of(response, function_calls=True)
    received = [json.loads(frame.data) for frame in frames if frame.event == 'function_call']

    assert [call['id'] for call in received] == CALLS[name]
    assert received[0] | {'arguments': None} == {'id': CALLS[name][0], 'name': 'get_weather', 'arguments': None}
    assert json.loads(received[0]['arguments']) == {'city': 'Paris'}
    assert received == [{'id': c.id, 'name': c.name, 'arguments': c.arguments} for c in response.tool_calls]
    assert frames[-1].event != 'function_call'


async def test_end_of_the_stream_follows_its_calls() -> None:
    frames = await lines_of(wrap('openai_tools_interleaved'), function_calls=True)
    reasons = [frame.data for frame in frames]

    assert [frame.event for frame in frames] == [None, None, 'function_call', 'function_call', None, None, None]
    assert '"finish_reason":"tool_calls"' in reasons[4]
    assert reasons[-1] == '[DONE]'


class LineDecoder:
    """Decoder of an invented provider: `say …`, `call name args` and `bye`, several per frame."""

    def decode(self, frame: Frame) -> Sequence[StreamEvent]:
        return [event for line in frame.data.split('\n') for event in self._line(line)]

    def finish(self) -> Sequence[StreamEvent]:
        return [ErrorEvent(kind='truncated', message='It did not say bye.')]

    def _line(self, line: str) -> Sequence[StreamEvent]:
        match line.split(' ', 2):
            case ['say', text]:
                return [TextEvent(text=text)]
            case ['call', name, args]:
                return [
                    ToolCallDeltaEvent(index=0, id='1', name=name, args=args),
                    ToolCallEvent(id='1', name=name, args=args, index=0),
                ]
            case _:
                return [EndEvent()] if line == 'bye' else []


async def test_new_provider_only_needs_a_decoder() -> None:
    """004-29: only a decoder is needed. Frames that contain only calls are removed."""
    body = b'data: say hello\n\ndata: call f {}\n\ndata: ping\n\ndata: say bye\ndata: call g {}\n\ndata: bye\n\n'
    response = HybridResponse(chunks_of(body), LineDecoder())
    frames = await lines_of(response, function_calls=True)

    assert [(frame.event, frame.data) for frame in frames] == [
        (None, 'say hello'),
        ('function_call', '{"id":"1","name":"f","arguments":"{}"}'),
        (None, 'ping'),
        ('function_call', '{"id":"1","name":"g","arguments":"{}"}'),
        (None, 'say bye\ncall g {}'),
        (None, 'bye'),
    ]
    assert await response.content() == 'hellobye'
    assert [call.name for call in response.tool_calls] == ['f', 'g']


@pytest.mark.parametrize(
    ('status', 'body', 'message'),
    [
        (429, b'{"error": {"message": "Slow down.", "type": "x"}}', 'The provider answered with HTTP 429: Slow down.'),
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', 'HTTP 529: Overloaded'),
        (503, b'[{"error": {"code": 503, "message": "Later."}}]', 'The provider answered with HTTP 503: Later.'),
        (422, b'{"detail": "Not like this."}', 'The provider answered with HTTP 422: Not like this.'),
        (401, b'{"error":{"message":"Incorrect API key: sk-abcdef123456."}}', 'HTTP 401: Incorrect API key: …'),
        (500, b'{"error": 5}', 'The provider answered with HTTP 500: it did not say why.'),
        (502, b'Bad\n gateway', 'The provider answered with HTTP 502: Bad gateway'),
        (502, b' <html>nginx</html>', 'The provider answered with HTTP 502.'),
        (500, b'', 'The provider answered with HTTP 500.'),
        (500, b'\xff', 'The provider answered with HTTP 500: \N{REPLACEMENT CHARACTER}'),
    ],
)
async def test_http_error_is_an_error_event(status: int, body: bytes, message: str) -> None:
    """004-32: relayed as `event: error`, never as a normal end (peers, streaming proxies)."""
    response = HybridResponse(chunks_of(body), OpenaiDecoder(), status=status)
    (frame,) = await lines_of(response)
    event = STREAM_EVENTS.validate_json(frame.data)

    assert frame.event == 'error'
    assert isinstance(event, ErrorEvent)
    assert event == response.error
    assert (event.kind, event.status) == ('http_error', status)
    assert event.message.endswith(message)
    assert json.loads(frame.data)['error'] == {'type': 'http_error', 'message': event.message, 'code': status}
    assert (response.finish_reason, await response.content()) == (None, '')


async def test_endless_error_page_is_read_only_partly() -> None:
    upstream = Upstream([b'x' * 10_000] * 100)
    response = HybridResponse(upstream.read(), OpenaiDecoder(), status=500)
    (event,) = await events_of(response)

    assert isinstance(event, ErrorEvent)
    assert len(event.message) < 300
    assert (upstream.taken, upstream.is_closed) == (7, True)


async def test_http_error_with_an_incomplete_body_is_an_error_event() -> None:
    upstream = Upstream([b'Gone'], failure=httpx.ReadError('reset'))
    response = HybridResponse(upstream.read(), OpenaiDecoder(), status=500)

    assert [event.type for event in await events_of(response)] == ['error']
    assert response.error is not None
    assert response.error.message == 'The provider answered with HTTP 500: Gone'


async def test_lost_connection_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """peers, streaming proxies: every failure ends as a normal `stop`. Earlier text is preserved."""
    failure = httpx.ReadError('reset by http://provider.test?key=SECRET')
    upstream = Upstream(openai({'content': 'Hel'}, {'content': 'lo'}, end=False), failure=failure)
    response = HybridResponse(upstream.read(), OpenaiDecoder())
    with caplog.at_level(logging.WARNING, 'pydantic_deep'):
        frames = await lines_of(response)

    assert [frame.event for frame in frames] == [None, None, 'error']
    assert response.error == ErrorEvent(
        kind='connection_lost', message='The connection to the provider broke off (ReadError). Ask again.', status=502
    )
    assert response.finish_reason is None
    assert await response.content() == 'Hello'
    assert [record.getMessage() for record in caplog.records] == ['The stream of a provider broke off']


@pytest.mark.parametrize('provider', DECODERS)
async def test_truncated_stream_ends_with_an_error(provider: str) -> None:
    """004-32: an incomplete answer does not end normally."""
    frames = await lines_of(wrap(f'{provider}_truncated'))

    assert [frame.event for frame in frames if frame.event == 'error'] == ['error']
    assert json.loads(frames[-1].data)['kind'] == 'truncated'
    assert all(frame.data != '[DONE]' for frame in frames)


@pytest.mark.parametrize('provider', DECODERS)
async def test_error_of_the_provider_is_emitted_once(provider: str) -> None:
    frames = await lines_of(wrap(f'{provider}_error'))

    assert (
        sum(
            'overloaded' in frame.data or 'had an error' in frame.data.lower() or '"error"' in frame.data
            for frame in frames
        )
        == 1
    )
    assert frames[-1].event == 'error'
    assert json.loads(frames[-1].data)['kind'] == 'provider_error'


async def test_text_that_arrives_with_an_error_is_passed_on_first() -> None:
    body = b'data: {"choices":[{"delta":{"content":"Hi"}}],"error":{"message":"Cut."}}\n\ndata: [DONE]\n\n'
    response = HybridResponse(chunks_of(body), OpenaiDecoder())

    assert [frame.event for frame in await lines_of(response)] == [None, 'error']
    assert await response.content() == 'Hi'


async def test_partial_json_is_an_error_and_not_passed_on() -> None:
    """004-32: partial JSON or HTTP errors are relayed as SSE (`event: error`)."""
    body = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: {"choices":[{"del\n\ndata: [DONE]\n\n'
    frames = await lines_of(HybridResponse(chunks_of(body), OpenaiDecoder()))

    assert [frame.event for frame in frames] == [None, 'error']
    assert json.loads(frames[-1].data)['kind'] == 'malformed'


async def test_body_that_is_not_an_event_stream_is_an_error() -> None:
    response = HybridResponse(chunks_of(b'{\n  "choices": []\n}\n'), OpenaiDecoder())

    assert [event.type for event in await events_of(response)] == ['error']


async def test_complete_last_frame_without_a_blank_line_is_read() -> None:
    response = HybridResponse(chunks_of(*openai({'content': 'Hi'}, end=False), b'data: [DONE]\n'), OpenaiDecoder())

    assert [frame.data for frame in await lines_of(response)][-1] == '[DONE]'
    assert response.finish_reason == 'stop'


async def test_incomplete_last_frame_is_truncated() -> None:
    """Even after the finish reason, because usage may be lost."""
    body = stream('google_text') + b'data: {"usageMetadata":{"promptTo'
    response = HybridResponse(chunks_of(body), GoogleDecoder())
    await events_of(response)

    assert (response.error and response.error.kind, response.finish_reason) == ('truncated', None)


async def test_oversized_frame_is_an_error() -> None:
    body = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: ' + b'x' * 1000
    response = HybridResponse(chunks_of(body), OpenaiDecoder(), max_frame_bytes=200)

    assert [event.type for event in await events_of(response)] == ['start', 'text', 'error']
    assert response.error is not None
    assert response.error.kind == 'too_large'


async def test_stream_is_not_read_after_its_end() -> None:
    """Some servers do not close the connection after `[DONE]`."""
    upstream = Upstream([*openai({'content': 'Hi'}), b'data: late\n\n'], waits=True)

    assert (await events_of(HybridResponse(upstream.read(), OpenaiDecoder())))[-1] == EndEvent()
    assert (upstream.taken, upstream.is_closed) == (2, True)


async def test_stream_is_read_on_demand() -> None:
    upstream = Upstream(openai(*[{'content': 'x'}] * 50))
    response = HybridResponse(upstream.read(), OpenaiDecoder())
    async with aclosing(response.iter_lines()) as lines:
        for count in range(1, 6):
            await anext(lines)
            assert upstream.taken == count

    assert upstream.is_closed


async def test_cancelled_reader_keeps_the_received_content() -> None:
    """The connection is closed too."""
    upstream = Upstream(openai({'content': 'Hel'}, {'content': 'lo'}, end=False), waits=True)
    response = HybridResponse(upstream.read(), OpenaiDecoder())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events_of, response)
        await upstream.waiting.wait()
        tasks.cancel_scope.cancel()

    assert upstream.is_closed
    assert await response.content() == 'Hello'
    assert (response.finish_reason, response.error) == (None, None)


async def test_closing_the_response_closes_the_stream() -> None:
    upstream = Upstream(openai({'content': 'Hi'}))
    async with HybridResponse(upstream.read(), OpenaiDecoder()) as response:
        events = aiter(response)
        await anext(events)
        assert not upstream.is_closed
    assert upstream.is_closed
    await response.aclose()


async def test_source_without_aclose_is_read() -> None:
    class Chunks:
        def __init__(self) -> None:
            self.left = openai({'content': 'Hi'})

        def __aiter__(self) -> Chunks:
            return self

        async def __anext__(self) -> bytes:
            return self.left.pop(0)

    async with HybridResponse(Chunks(), OpenaiDecoder()) as response:
        assert [event.type for event in await events_of(response)] == ['start', 'text', 'end']


async def test_hybrid_response_can_be_read_only_once() -> None:
    response = wrap('openai_usage_null')
    await events_of(response)

    with pytest.raises(RuntimeError, match='was already read'):
        await events_of(response)
    with pytest.raises(RuntimeError, match='was already read'):
        await lines_of(response)


async def test_long_answer_is_complete_with_a_small_window() -> None:
    """004-30, C27: `.content` returns the window and the spilled text."""
    pieces = [{'content': f'{number:05d} 北京 '} for number in range(2000)]
    response = HybridResponse(chunks_of(*openai(*pieces)), OpenaiDecoder(), window_bytes=1024)
    await events_of(response)

    assert await response.content() == ''.join(piece['content'] for piece in pieces)


@pytest.mark.slow
async def test_memory_is_bounded_for_long_answers() -> None:
    """004-30: four megabytes of text in frames of a kilobyte, with less than half a megabyte in memory."""

    async def chunks(count: int) -> AsyncGenerator[bytes]:
        (chunk,) = openai({'content': 'x' * 1000}, end=False)
        for _ in range(count):
            yield chunk
        yield b'data: [DONE]\n\n'

    async def count_lines(response: HybridResponse) -> int:
        return len([None async for _ in response.iter_lines()])

    # The first response that spills imports modules, whose memory is not that of an answer.
    await count_lines(HybridResponse(chunks(100), OpenaiDecoder(), window_bytes=64 * 1024))
    response = HybridResponse(chunks(4000), OpenaiDecoder(), window_bytes=64 * 1024)
    tracemalloc.start()
    count = await count_lines(response)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 4001
    assert peak_bytes < 500_000
    assert len(await response.content()) == 4_000_000


async def test_failing_spill_is_an_error() -> None:
    class Full:
        async def write(self, data: bytes) -> None:
            raise OSError(28, 'No space left on device')

        async def read(self) -> bytes:
            return b''

        async def aclose(self) -> None: ...

    pieces = openai({'content': 'Hello'}, {'content': 'World'})
    response = HybridResponse(chunks_of(*pieces), OpenaiDecoder(), window_bytes=4, spill=Full())

    assert [event.type for event in await events_of(response)] == ['start', 'text', 'error']
    assert response.error is not None
    assert response.error.kind == 'spill_failed'
    assert await response.content() == 'Hello'


async def test_arguments_that_are_not_an_object_are_refused() -> None:
    with pytest.raises(ValueError, match="arguments of 'f' are not a JSON object: '\\[1\\]'"):
        FunctionCall(id='1', name='f', arguments='[1]').parsed()


def proxied(name: str) -> httpx2.AsyncClient:
    """Return a client that receives the lines of a wrapped stream, as from a proxy."""

    async def answer(request: httpx2.Request) -> httpx2.Response:
        body = ''.join([line async for line in wrap(name).iter_lines()])
        return httpx2.Response(200, headers={'content-type': 'text/event-stream'}, content=body, request=request)

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


@pytest.mark.parametrize('name', ['openai_error', 'openai_truncated'])
async def test_openai_sdk_raises_proxied_errors(name: str) -> None:
    """004-32: also for a truncated stream, which the SDK does not detect itself."""
    async with AsyncOpenAI(api_key='x', base_url='http://x', http_client=proxied(name)) as client:
        chunks = await client.chat.completions.create(model='m', messages=[], stream=True)
        with pytest.raises(APIError, match=r'The server had an error|The stream ended'):
            [chunk async for chunk in chunks]


@pytest.mark.parametrize('name', ['anthropic_error', 'anthropic_truncated'])
async def test_anthropic_sdk_raises_proxied_errors(name: str) -> None:
    """004-32: partial JSON or HTTP errors are relayed as SSE (`event: error`)."""
    async with AsyncAnthropic(api_key='x', base_url='http://x', http_client=proxied(name)) as client:
        with pytest.raises(APIStatusError, match=r'Overloaded|The stream ended'):
            async with client.messages.stream(
                model='m', max_tokens=5, messages=[{'role': 'user', 'content': 'x'}]
            ) as stream:
                await stream.get_final_message()


@pytest.mark.parametrize('name', ['google_error', 'google_truncated'])
async def test_google_sdk_raises_proxied_errors(name: str) -> None:
    """004-32: the SDK does not support `event:` lines, so this line makes it raise."""
    client = Client(api_key='x', http_options=HttpOptions(base_url='http://x', httpx_async_client=proxied(name)))
    # Its type refers to PIL images, which is not installed.
    chunks = await client.aio.models.generate_content_stream(model='m', contents='x')  # pyright: ignore[reportUnknownMemberType]
    with pytest.raises(UnknownApiResponseError, match='event: error'):
        [chunk async for chunk in chunks]
    await client.aio.aclose()
    client.close()
