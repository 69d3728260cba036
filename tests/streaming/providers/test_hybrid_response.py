"""`HybridResponse`: a provider's stream is read and passed on at once, whichever provider it is."""

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
    """The chunks of a body, and what became of them."""

    chunks: Sequence[bytes]
    failure: Exception | None = None
    waits: bool = False
    """Whether it says nothing more at its end, and does not end."""
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
    """Chunks of bytes, one for each frame."""
    frames = [f'data: {json.dumps({"choices": [{"delta": delta}]})}\n\n'.encode() for delta in deltas]
    return [*frames, b'data: [DONE]\n\n'] if end else frames


async def lines_of(response: HybridResponse, *, function_calls: bool = False) -> list[Frame]:
    text = ''.join([line async for line in response.iter_lines(function_calls=function_calls)])
    return FrameReader().feed(text.encode())


async def events_of(response: HybridResponse) -> list[StreamEvent]:
    return [event async for event in response]


async def test_a_response_of_an_http_client_is_wrapped() -> None:
    """004-13, 004-16: what has come is there when the stream has ended, and the connection is closed."""

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
async def test_lines_have_the_text_of_the_stream_and_no_calls(name: str) -> None:
    """004-14, 004-27: of every provider; calls are held back and collected, and no text is lost with them."""
    decoder = DECODERS[name.split('_')[0]]
    whole = wrap(name)
    await events_of(whole)
    passed = HybridResponse(chunks_of(*[render_frame(f).encode() for f in await lines_of(wrap(name))]), decoder())
    told = await events_of(passed)

    assert await passed.content() == await whole.content()
    assert [event for event in told if isinstance(event, ToolCallDeltaEvent | ToolCallEvent)] == []
    assert passed.usage == whole.usage


@pytest.mark.parametrize('name', sorted(path.stem for path in STREAMS.glob('*.sse')))
async def test_it_does_not_matter_where_chunks_are_cut(name: str) -> None:
    """004-13: a byte at a time, within characters and line ends, gives the same events and lines."""
    chunks = [bytes([byte]) for byte in stream(name)]
    decoder = DECODERS[name.split('_')[0]]

    assert await events_of(HybridResponse(chunks_of(*chunks), decoder())) == await events_of(wrap(name))
    assert await lines_of(HybridResponse(chunks_of(*chunks), decoder())) == await lines_of(wrap(name))


@pytest.mark.parametrize('name', ['openai_usage_null', 'anthropic_text', 'anthropic_server_tools', 'google_text'])
async def test_frames_without_calls_are_passed_on_as_they_came(name: str) -> None:
    sent = FrameReader().feed(stream(name))

    assert await lines_of(wrap(name)) == sent


@pytest.mark.parametrize('name', CALLS)
async def test_calls_are_told_whole_when_asked_for(name: str) -> None:
    """004-15: `event: function_call`, in the order of the answer (004-31), before the end."""
    response = wrap(name)
    frames = await lines_of(response, function_calls=True)
    told = [json.loads(frame.data) for frame in frames if frame.event == 'function_call']

    assert [call['id'] for call in told] == CALLS[name]
    assert told[0] | {'arguments': None} == {'id': CALLS[name][0], 'name': 'get_weather', 'arguments': None}
    assert json.loads(told[0]['arguments']) == {'city': 'Paris'}
    assert told == [{'id': c.id, 'name': c.name, 'arguments': c.arguments} for c in response.tool_calls]
    assert frames[-1].event != 'function_call'


async def test_the_end_of_a_stream_comes_after_its_calls() -> None:
    frames = await lines_of(wrap('openai_tools_interleaved'), function_calls=True)
    reasons = [frame.data for frame in frames]

    assert [frame.event for frame in frames] == [None, None, 'function_call', 'function_call', None, None, None]
    assert '"finish_reason":"tool_calls"' in reasons[4]
    assert reasons[-1] == '[DONE]'


class LineDecoder:
    """The decoder of a provider that does not exist: `say …`, `call name args` and `bye`, several to a frame."""

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


async def test_a_new_provider_is_a_new_decoder() -> None:
    """004-29: nothing but a decoder is needed; frames that are only calls are held back."""
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
async def test_an_http_error_is_an_event(status: int, body: bytes, message: str) -> None:
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


async def test_a_page_that_does_not_end_is_not_read_to_its_end() -> None:
    upstream = Upstream([b'x' * 10_000] * 100)
    response = HybridResponse(upstream.read(), OpenaiDecoder(), status=500)
    (event,) = await events_of(response)

    assert isinstance(event, ErrorEvent)
    assert len(event.message) < 300
    assert (upstream.taken, upstream.is_closed) == (7, True)


async def test_an_http_error_whose_body_breaks_off_is_an_event() -> None:
    upstream = Upstream([b'Gone'], failure=httpx.ReadError('reset'))
    response = HybridResponse(upstream.read(), OpenaiDecoder(), status=500)

    assert [event.type for event in await events_of(response)] == ['error']
    assert response.error is not None
    assert response.error.message == 'The provider answered with HTTP 500: Gone'


async def test_a_connection_that_breaks_off_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """peers, streaming proxies: every failure ends as a normal `stop`. What came before it is there."""
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
async def test_a_stream_that_was_cut_ends_by_an_error(provider: str) -> None:
    """004-32: an unfinished answer never ends as a whole one."""
    frames = await lines_of(wrap(f'{provider}_truncated'))

    assert [frame.event for frame in frames if frame.event == 'error'] == ['error']
    assert json.loads(frames[-1].data)['kind'] == 'truncated'
    assert all(frame.data != '[DONE]' for frame in frames)


@pytest.mark.parametrize('provider', DECODERS)
async def test_an_error_of_the_provider_is_told_once(provider: str) -> None:
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


async def test_text_that_came_with_an_error_is_passed_on_before_it() -> None:
    body = b'data: {"choices":[{"delta":{"content":"Hi"}}],"error":{"message":"Cut."}}\n\ndata: [DONE]\n\n'
    response = HybridResponse(chunks_of(body), OpenaiDecoder())

    assert [frame.event for frame in await lines_of(response)] == [None, 'error']
    assert await response.content() == 'Hi'


async def test_partial_json_is_an_error_and_is_not_passed_on() -> None:
    """004-32."""
    body = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: {"choices":[{"del\n\ndata: [DONE]\n\n'
    frames = await lines_of(HybridResponse(chunks_of(body), OpenaiDecoder()))

    assert [frame.event for frame in frames] == [None, 'error']
    assert json.loads(frames[-1].data)['kind'] == 'malformed'


async def test_what_is_no_stream_at_all_is_an_error() -> None:
    response = HybridResponse(chunks_of(b'{\n  "choices": []\n}\n'), OpenaiDecoder())

    assert [event.type for event in await events_of(response)] == ['error']


async def test_a_last_frame_without_a_blank_line_is_read_if_it_is_whole() -> None:
    response = HybridResponse(chunks_of(*openai({'content': 'Hi'}, end=False), b'data: [DONE]\n'), OpenaiDecoder())

    assert [frame.data for frame in await lines_of(response)][-1] == '[DONE]'
    assert response.finish_reason == 'stop'


async def test_a_last_frame_that_is_not_whole_is_truncated() -> None:
    """Even after the reason of the end: usage may be lost."""
    body = stream('google_text') + b'data: {"usageMetadata":{"promptTo'
    response = HybridResponse(chunks_of(body), GoogleDecoder())
    await events_of(response)

    assert (response.error and response.error.kind, response.finish_reason) == ('truncated', None)


async def test_a_frame_that_is_too_large_is_an_error() -> None:
    body = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: ' + b'x' * 1000
    response = HybridResponse(chunks_of(body), OpenaiDecoder(), max_frame_bytes=200)

    assert [event.type for event in await events_of(response)] == ['start', 'text', 'error']
    assert response.error is not None
    assert response.error.kind == 'too_large'


async def test_nothing_is_read_after_the_end() -> None:
    """Some servers keep the connection open after `[DONE]`."""
    upstream = Upstream([*openai({'content': 'Hi'}), b'data: late\n\n'], waits=True)

    assert (await events_of(HybridResponse(upstream.read(), OpenaiDecoder())))[-1] == EndEvent()
    assert (upstream.taken, upstream.is_closed) == (2, True)


async def test_a_stream_is_read_no_faster_than_it_is_taken() -> None:
    upstream = Upstream(openai(*[{'content': 'x'}] * 50))
    response = HybridResponse(upstream.read(), OpenaiDecoder())
    async with aclosing(response.iter_lines()) as lines:
        for count in range(1, 6):
            await anext(lines)
            assert upstream.taken == count

    assert upstream.is_closed


async def test_a_reader_that_is_cancelled_keeps_what_has_come() -> None:
    """And the connection is closed."""
    upstream = Upstream(openai({'content': 'Hel'}, {'content': 'lo'}, end=False), waits=True)
    response = HybridResponse(upstream.read(), OpenaiDecoder())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events_of, response)
        await upstream.waiting.wait()
        tasks.cancel_scope.cancel()

    assert upstream.is_closed
    assert await response.content() == 'Hello'
    assert (response.finish_reason, response.error) == (None, None)


async def test_closing_it_closes_the_stream() -> None:
    upstream = Upstream(openai({'content': 'Hi'}))
    async with HybridResponse(upstream.read(), OpenaiDecoder()) as response:
        events = aiter(response)
        await anext(events)
        assert not upstream.is_closed
    assert upstream.is_closed
    await response.aclose()


async def test_a_source_without_an_end_to_close_is_read() -> None:
    class Chunks:
        def __init__(self) -> None:
            self.left = openai({'content': 'Hi'})

        def __aiter__(self) -> Chunks:
            return self

        async def __anext__(self) -> bytes:
            return self.left.pop(0)

    async with HybridResponse(Chunks(), OpenaiDecoder()) as response:
        assert [event.type for event in await events_of(response)] == ['start', 'text', 'end']


async def test_it_is_read_once() -> None:
    response = wrap('openai_usage_null')
    await events_of(response)

    with pytest.raises(RuntimeError, match='was already read'):
        await events_of(response)
    with pytest.raises(RuntimeError, match='was already read'):
        await lines_of(response)


async def test_a_long_answer_is_kept_whole_in_little_memory() -> None:
    """004-30, C27: `.content` has the window and what was spilled."""
    pieces = [{'content': f'{number:05d} 北京 '} for number in range(2000)]
    response = HybridResponse(chunks_of(*openai(*pieces)), OpenaiDecoder(), window_bytes=1024)
    await events_of(response)

    assert await response.content() == ''.join(piece['content'] for piece in pieces)


async def test_memory_is_bounded_however_long_an_answer_is() -> None:
    """004-30: four megabytes of text in frames of a kilobyte, and never half a megabyte in memory."""

    async def chunks() -> AsyncGenerator[bytes]:
        (chunk,) = openai({'content': 'x' * 1000}, end=False)
        for _ in range(4000):
            yield chunk
        yield b'data: [DONE]\n\n'

    response = HybridResponse(chunks(), OpenaiDecoder(), window_bytes=64 * 1024)
    tracemalloc.start()
    count = 0
    async for _ in response.iter_lines():
        count += 1
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 4001
    assert peak_bytes < 500_000
    assert len(await response.content()) == 4_000_000


async def test_a_spill_that_fails_is_an_error() -> None:
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


async def test_arguments_that_are_no_object_are_refused() -> None:
    with pytest.raises(ValueError, match="arguments of 'f' are not a JSON object: '\\[1\\]'"):
        FunctionCall(id='1', name='f', arguments='[1]').parsed()


def proxied(name: str) -> httpx2.AsyncClient:
    """Answers with the lines of a wrapped stream, as a proxy would."""

    async def answer(request: httpx2.Request) -> httpx2.Response:
        body = ''.join([line async for line in wrap(name).iter_lines()])
        return httpx2.Response(200, headers={'content-type': 'text/event-stream'}, content=body, request=request)

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


@pytest.mark.parametrize('name', ['openai_error', 'openai_truncated'])
async def test_the_sdk_of_openai_raises_what_goes_wrong(name: str) -> None:
    """004-32: also where the stream was cut, which the SDK does not see by itself."""
    async with AsyncOpenAI(api_key='x', base_url='http://x', http_client=proxied(name)) as client:
        chunks = await client.chat.completions.create(model='m', messages=[], stream=True)
        with pytest.raises(APIError, match=r'The server had an error|The stream ended'):
            [chunk async for chunk in chunks]


@pytest.mark.parametrize('name', ['anthropic_error', 'anthropic_truncated'])
async def test_the_sdk_of_anthropic_raises_what_goes_wrong(name: str) -> None:
    """004-32."""
    async with AsyncAnthropic(api_key='x', base_url='http://x', http_client=proxied(name)) as client:
        with pytest.raises(APIStatusError, match=r'Overloaded|The stream ended'):
            async with client.messages.stream(
                model='m', max_tokens=5, messages=[{'role': 'user', 'content': 'x'}]
            ) as stream:
                await stream.get_final_message()


@pytest.mark.parametrize('name', ['google_error', 'google_truncated'])
async def test_the_sdk_of_google_raises_when_something_goes_wrong(name: str) -> None:
    """004-32: it knows no `event:` lines, so it raises at this one."""
    client = Client(api_key='x', http_options=HttpOptions(base_url='http://x', httpx_async_client=proxied(name)))
    # Its type names PIL's images, which are not installed.
    chunks = await client.aio.models.generate_content_stream(model='m', contents='x')  # pyright: ignore[reportUnknownMemberType]
    with pytest.raises(UnknownApiResponseError, match='event: error'):
        [chunk async for chunk in chunks]
    await client.aio.aclose()
    client.close()
