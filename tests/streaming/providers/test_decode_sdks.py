"""The sample streams are realistic: the official SDKs read the same text and calls from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from anthropic import AsyncAnthropic
from google.genai import Client
from google.genai.types import HttpOptions
from openai import AsyncOpenAI

from pydantic_deep.streaming import (
    AnthropicDecoder,
    Decoder,
    ErrorEvent,
    FrameReader,
    GoogleDecoder,
    OpenaiDecoder,
    TextEvent,
    ToolCallEvent,
)

pytestmark = pytest.mark.anyio
STREAMS = Path(__file__).parents[1] / 'streams'
URL = 'http://provider.test'


def names(provider: str) -> list[str]:
    """Return the sample streams of a provider that end normally."""
    found = [path.name for path in STREAMS.glob(f'{provider}_*.sse')]
    return sorted(name for name in found if 'truncated' not in name and 'error' not in name)


def client_for(name: str) -> httpx2.AsyncClient:
    """Return a client whose every response is the stream."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {'content-type': 'text/event-stream'}
        return httpx2.Response(200, headers=headers, content=(STREAMS / name).read_bytes(), request=request)

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


def decoded(name: str, decoder: Decoder) -> tuple[str, list[tuple[str, object]]]:
    frames = FrameReader().feed((STREAMS / name).read_bytes())
    events = [*(event for frame in frames for event in decoder.decode(frame)), *decoder.finish()]
    assert not any(isinstance(event, ErrorEvent) for event in events)
    text = ''.join(event.text for event in events if isinstance(event, TextEvent))
    return text, [(event.name, json.loads(event.args)) for event in events if isinstance(event, ToolCallEvent)]


@pytest.mark.parametrize('name', names('openai'))
async def test_openai_sdk_reads_the_same(name: str) -> None:
    async with AsyncOpenAI(api_key='x', base_url=URL, http_client=client_for(name)) as client:
        chunks = [chunk async for chunk in await client.chat.completions.create(model='m', messages=[], stream=True)]
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    text = ''.join((delta.content or '') + (delta.refusal or '') for delta in deltas)
    calls: dict[int, tuple[str, str]] = {}
    for delta in deltas:
        legacy = [(0, delta.function_call)] if delta.function_call else []
        for index, function in [*legacy, *((piece.index, piece.function) for piece in delta.tool_calls or [])]:
            assert function is not None
            called, args = calls.get(index, ('', ''))
            calls[index] = (called + (function.name or ''), args + (function.arguments or ''))

    assert decoded(name, OpenaiDecoder()) == (text, [(called, json.loads(args)) for called, args in calls.values()])
    assert text or calls


@pytest.mark.parametrize('name', names('anthropic'))
async def test_anthropic_sdk_reads_the_same(name: str) -> None:
    async with (
        AsyncAnthropic(api_key='x', base_url=URL, http_client=client_for(name)) as client,
        client.messages.stream(model='m', max_tokens=5, messages=[{'role': 'user', 'content': 'x'}]) as stream,
    ):
        message = await stream.get_final_message()
    text = ''.join(block.text for block in message.content if block.type == 'text')
    calls = [(block.name, block.input) for block in message.content if block.type == 'tool_use']

    assert decoded(name, AnthropicDecoder()) == (text, calls)
    assert text or calls


@pytest.mark.parametrize('name', names('google'))
async def test_google_sdk_reads_the_same(name: str) -> None:
    client = Client(api_key='x', http_options=HttpOptions(base_url=URL, httpx_async_client=client_for(name)))
    # Its type refers to PIL images, which is not installed.
    stream = await client.aio.models.generate_content_stream(model='m', contents='x')  # pyright: ignore[reportUnknownMemberType]
    chunks = [chunk async for chunk in stream]
    await client.aio.aclose()
    client.close()
    contents = [chunk.candidates[0].content for chunk in chunks if chunk.candidates]
    parts = [part for content in contents if content for part in content.parts or []]
    text = ''.join(part.text for part in parts if part.text and not part.thought)
    calls = [(part.function_call.name, part.function_call.args) for part in parts if part.function_call]

    assert decoded(name, GoogleDecoder()) == (text, calls)
    assert text or calls or chunks[0].prompt_feedback


@pytest.mark.parametrize('make', [OpenaiDecoder, AnthropicDecoder, GoogleDecoder])
def test_incomplete_streams_are_errors(make: Callable[[], Decoder]) -> None:
    """The SDKs accept a truncated stream as complete; the decoders do not."""
    provider = make.__name__.removesuffix('Decoder').lower()
    for name in ('truncated', 'error'):
        decoder = make()
        frames = FrameReader().feed((STREAMS / f'{provider}_{name}.sse').read_bytes())
        events = [*(event for frame in frames for event in decoder.decode(frame)), *decoder.finish()]

        assert events[-1].type == 'error'
