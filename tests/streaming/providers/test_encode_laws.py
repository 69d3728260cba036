"""Round trips: decoding an encoded answer returns an equal answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydantic_deep.streaming import (
    AnswerEncoder,
    AnthropicDecoder,
    AnthropicEncoder,
    Decoder,
    EndEvent,
    ErrorEvent,
    FinishReason,
    FrameReader,
    GoogleDecoder,
    GoogleEncoder,
    OpenaiDecoder,
    OpenaiEncoder,
    ResponsesEncoder,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
    encode_entry,
    render_frame,
    render_frames,
    text_of_entry,
)

words = st.text(st.characters(exclude_categories=['Cs']), min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words, lambda v: st.lists(v, max_size=3)
)
arguments = st.dictionaries(words, values, max_size=3).map(json.dumps)
counts = st.integers(0, 10**9)
texts = st.builds(TextEvent, text=words)
calls = st.builds(ToolCallEvent, id=st.uuids().map(str), name=st.sampled_from(['look', 'pay']), args=arguments)
REASONS: st.SearchStrategy[FinishReason] = st.sampled_from(('stop', 'length', 'content_filter'))
thoughts = st.builds(ThinkingEvent, text=words, signature=st.just('c2ln'))


@st.composite
def answers(draw: st.DrawFn) -> list[StreamEvent]:
    """Generate answers of a provider: parts, usage, and a matching end."""
    pieces: list[StreamEvent] = draw(st.lists(texts | calls | thoughts, max_size=8))
    has_calls = any(isinstance(piece, ToolCallEvent) for piece in pieces)
    reason: FinishReason = 'tool_call' if has_calls else draw(REASONS)
    read, fresh = draw(counts), draw(counts)
    usage = UsageEvent(input_tokens=read + fresh, output_tokens=draw(counts), cache_read_tokens=read, requests=1)
    return [StartEvent(id='i', model='m'), *pieces, usage, EndEvent(finish_reason=reason)]


def meaning(events: Sequence[StreamEvent]) -> dict[str, Any]:
    """Return the contents of events, independent of their deltas."""
    return {
        'start': [(event.id, event.model) for event in events if isinstance(event, StartEvent)],
        'text': ''.join(event.text for event in events if isinstance(event, TextEvent)),
        'thoughts': ''.join(event.text for event in events if isinstance(event, ThinkingEvent)),
        'calls': [(e.id, e.name, json.loads(e.args)) for e in events if isinstance(e, ToolCallEvent)],
        'usage': [event for event in events if isinstance(event, UsageEvent)][-1:],
        'errors': [event.message for event in events if isinstance(event, ErrorEvent)],
        'end': [event.finish_reason for event in events if isinstance(event, EndEvent)],
    }


def over_the_wire(encoder: AnswerEncoder, decoder: Decoder, events: Sequence[StreamEvent]) -> list[StreamEvent]:
    result = [*(frame for event in events for frame in encoder.encode(event)), *encoder.finish()]
    frames = FrameReader().feed(''.join(map(render_frame, result)).encode())
    return [*(event for frame in frames for event in decoder.decode(frame)), *decoder.finish()]


def openai() -> tuple[AnswerEncoder, Decoder]:
    return OpenaiEncoder(tool_calls=True, thinking=True, include_usage=True), OpenaiDecoder()


def anthropic() -> tuple[AnswerEncoder, Decoder]:
    return AnthropicEncoder(tool_calls=True, thinking=True), AnthropicDecoder()


def google() -> tuple[AnswerEncoder, Decoder]:
    return GoogleEncoder(tool_calls=True, thinking=True), GoogleDecoder()


formats = pytest.mark.parametrize('make', [openai, anthropic, google])
Make = Callable[[], tuple[AnswerEncoder, Decoder]]


@pytest.mark.slow
@formats
@settings(max_examples=60)
@given(events=answers())
def test_encoded_answers_round_trip(make: Make, events: list[StreamEvent]) -> None:
    """004-27, 004-28: text, thinking, calls, usage and the end, through each format."""
    result = meaning(over_the_wire(*make(), events))
    expected = meaning(events)
    if make is google and expected['calls']:
        assert result['end'] in (['stop'], ['tool_call'])  # Google's word for both is STOP
        result['end'] = expected['end']
    assert result == expected


@formats
@settings(max_examples=30)
@given(events=answers(), at=st.integers(1, 8))
def test_error_round_trips_as_an_error(make: Make, events: list[StreamEvent], at: int) -> None:
    """004-32: a failed answer does not end normally after decoding."""
    failed = [*events[:at], ErrorEvent(kind='run_failed', message='No.', status=500)]
    result = meaning(over_the_wire(*make(), failed if at < len(events) else [*events[:-1], failed[-1]]))
    assert result['errors'] == ['The provider failed: No.']
    assert result['end'] == []


said = st.builds(TextEvent, text=st.text(min_size=1, max_size=5))
others: st.SearchStrategy[StreamEvent] = st.sampled_from(
    (
        TextEvent(text='of a subagent', path=['a']),
        ThinkingEvent(text='Hm', signature='c2ln'),
        ToolCallEvent(id='c', name='look', args='{}'),
        ToolResultEvent(id='r', name='ls', outcome='success', content='/a'),
        RetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=0, void_text='a'),
        UsageEvent(input_tokens=3),
        EndEvent(output='Done.'),
        ErrorEvent(kind='failed', message='No.'),
    )
)


@pytest.mark.parametrize(
    'make',
    [
        partial(OpenaiEncoder, created=0),
        AnthropicEncoder,
        GoogleEncoder,
        partial(ResponsesEncoder, created_at=0, completed_at=0),
    ],
    ids=['chat', 'anthropic', 'google', 'responses'],
)
@given(events=st.lists(said | said | said | others, max_size=12), has_start=st.booleans())
@settings(max_examples=60)
def test_texts_that_are_not_parsed_are_encoded_like_others(
    make: Callable[..., AnswerEncoder | ResponsesEncoder], events: list[StreamEvent], has_start: bool
) -> None:
    """The JSON of a text in the log is inserted into a frame as it is: the client gets the same frames, in any state."""
    parsed, inserted = (make(id='i', model='m', tool_calls=True, thinking=True) for _ in range(2))
    stream: list[StreamEvent] = [StartEvent(id='i', model='m')] * has_start
    expected, found = b'', b''
    for event in [*stream, *events]:
        text = text_of_entry(encode_entry(event))
        expected += render_frames(parsed.encode(event))
        found += render_frames(inserted.encode(event)) if text is None else inserted.render_text(text)
    assert _contents(found) == _contents(expected)
    assert inserted.text == parsed.text


def _contents(stream: bytes) -> list[tuple[str | None, Any]]:
    return [(frame.event, json.loads(frame.data)) for frame in FrameReader().feed(stream)]
