"""A provider's stream can be re-encoded in another provider's format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pydantic_deep.streaming import (
    AnthropicDecoder,
    AnthropicEncoder,
    Decoder,
    Encoder,
    EndEvent,
    ErrorEvent,
    Frame,
    FrameReader,
    GoogleDecoder,
    GoogleEncoder,
    OpenaiDecoder,
    OpenaiEncoder,
    StreamEvent,
    TextEvent,
    ToolCallEvent,
    render_frame,
)

STREAMS = Path(__file__).parents[1] / 'streams'
DECODERS: dict[str, Callable[[], Decoder]] = {
    'openai': OpenaiDecoder,
    'anthropic': AnthropicDecoder,
    'google': GoogleDecoder,
}
ENCODERS: dict[str, Callable[[], Encoder]] = {
    'openai': lambda: OpenaiEncoder(model='m', tool_calls=True),
    'anthropic': lambda: AnthropicEncoder(model='m', tool_calls=True),
    'google': lambda: GoogleEncoder(model='m', tool_calls=True),
}


def decode(frames: list[Frame], decoder: Decoder) -> list[StreamEvent]:
    return [*(event for frame in frames for event in decoder.decode(frame)), *decoder.finish()]


def contents_of(events: list[StreamEvent]) -> tuple[str, list[tuple[str, str]], list[str], bool]:
    """Return text, calls, finish reasons, and whether the stream failed."""
    text = ''.join(event.text for event in events if isinstance(event, TextEvent))
    calls = [(event.name, event.args.replace(' ', '')) for event in events if isinstance(event, ToolCallEvent)]
    reasons = [event.finish_reason for event in events if isinstance(event, EndEvent)]
    return text, calls, reasons, isinstance(events[-1], ErrorEvent)


@pytest.mark.parametrize('spoken', ENCODERS)
@pytest.mark.parametrize('name', sorted(path.stem for path in STREAMS.glob('*.sse')))
def test_stream_has_the_same_contents_in_another_format(name: str, spoken: str) -> None:
    """004-27, 004-32: text, calls, finish reason and errors, for every pair of providers."""
    events = decode(FrameReader().feed((STREAMS / f'{name}.sse').read_bytes()), DECODERS[name.split('_')[0]]())
    encoder = ENCODERS[spoken]()
    frames = [*(frame for event in events for frame in encoder.encode(event)), *encoder.finish()]
    read = FrameReader().feed(''.join(map(render_frame, frames)).encode())

    assert contents_of(decode(read, DECODERS[spoken]())) == contents_of(events)
