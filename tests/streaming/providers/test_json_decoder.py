"""Decoders do not raise for any stream, and their events are consistent."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from pydantic_deep.streaming import (
    STREAM_EVENTS,
    AnthropicDecoder,
    EndEvent,
    ErrorEvent,
    Frame,
    GoogleDecoder,
    OpenaiDecoder,
    StreamEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
)

SomeDecoder = OpenaiDecoder | AnthropicDecoder | GoogleDecoder
DECODERS: list[Callable[..., SomeDecoder]] = [OpenaiDecoder, AnthropicDecoder, GoogleDecoder]

KEYS = [
    *('id', 'model', 'choices', 'index', 'delta', 'content', 'refusal', 'reasoning_content', 'finish_reason', 'usage'),
    *(
        'tool_calls',
        'function_call',
        'function',
        'name',
        'arguments',
        'prompt_tokens',
        'prompt_tokens_details',
        'error',
    ),
    *('type', 'message', 'content_block', 'text', 'thinking', 'signature', 'partial_json', 'input', 'stop_reason'),
    *('candidates', 'parts', 'functionCall', 'args', 'finishReason', 'usageMetadata', 'promptFeedback', 'blockReason'),
    *('responseId', 'thought', 'thoughtSignature', 'partialArgs', 'input_tokens', 'code', 'status'),
]
TYPES = [
    'message_start',
    'content_block_start',
    'content_block_delta',
    'content_block_stop',
    'message_delta',
    'tool_use',
]
WORDS = [
    *TYPES,
    'text_delta',
    'input_json_delta',
    'thinking_delta',
    'stop',
    'tool_calls',
    'STOP',
    'a',
    'é',
    '\ud83d',
    '',
]
leaves = st.none() | st.booleans() | st.integers(-1, 3) | st.just(10**400) | st.just(0.5) | st.sampled_from(WORDS)
anything: st.SearchStrategy[JsonValue] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)


def wrong(value: JsonValue) -> st.SearchStrategy[JsonValue]:
    """Return the same value, or one with parts replaced by arbitrary JSON."""
    if isinstance(value, dict):
        return anything | st.fixed_dictionaries({key: wrong(inner) for key, inner in value.items()})
    if isinstance(value, list):
        return anything | st.tuples(*map(wrong, value)).map(list)
    return st.just(value) | st.just(value) | leaves


function: JsonValue = {'name': 'f', 'arguments': '{"x":'}
usage: JsonValue = {'prompt_tokens': 1, 'prompt_tokens_details': {'cached_tokens': 1}, 'input_tokens': 2}
delta: JsonValue = {'content': 'a', 'refusal': 'b', 'tool_calls': [{'index': 0, 'id': 'c', 'function': function}]}
part: JsonValue = {'text': 'a', 'thought': True, 'functionCall': {'id': 'c', 'name': 'f', 'args': {'x': 1}}}
bodies: list[JsonValue] = [
    {'id': 'x', 'model': 'm', 'choices': [{'index': 0, 'delta': delta, 'finish_reason': 'stop'}], 'usage': usage},
    {'choices': [{'delta': {'function_call': function, 'reasoning': 'r'}}]},
    {'type': 'message_start', 'message': {'id': 'x', 'model': 'm', 'usage': usage}},
    {
        'type': 'content_block_start',
        'index': 0,
        'content_block': {'type': 'tool_use', 'id': 'c', 'name': 'f', 'input': {}},
    },
    {'type': 'content_block_delta', 'index': 0, 'delta': {'type': 'input_json_delta', 'partial_json': '{"x":'}},
    {'type': 'content_block_stop', 'index': 0},
    {'type': 'message_delta', 'delta': {'stop_reason': 'end_turn'}, 'usage': usage},
    {'candidates': [{'index': 0, 'content': {'parts': [part]}, 'finishReason': 'STOP'}], 'usageMetadata': usage},
    {'promptFeedback': {'blockReason': 'OTHER'}, 'error': {'code': 500, 'message': 'no', 'type': 'x'}},
]
one_body = st.sampled_from(bodies).flatmap(wrong) | anything
streams = st.lists(one_body, max_size=8)


def decode(decoder: SomeDecoder, stream: Sequence[JsonValue]) -> list[StreamEvent]:
    frames = [Frame(data=json.dumps(body)) for body in stream]
    return [*(event for frame in frames for event in decoder.decode(frame)), *decoder.finish()]


@pytest.mark.slow
@pytest.mark.parametrize('make', DECODERS)
@given(stream=streams)
def test_any_json_is_decoded(make: Callable[[], SomeDecoder], stream: list[JsonValue]) -> None:
    """There is one end or error, all text is valid Unicode, and each call is emitted once and equals its deltas."""
    events = decode(make(), stream)
    ends = [event for event in events if isinstance(event, ErrorEvent | EndEvent)]
    pieces: dict[int, str] = {}
    for event in events:
        if isinstance(event, ToolCallDeltaEvent):
            pieces[event.index] = pieces.get(event.index, '') + event.args
    decoded_calls = [event for event in events if isinstance(event, ToolCallEvent)]

    assert ends == events[-1:]
    assert [STREAM_EVENTS.validate_json(STREAM_EVENTS.dump_json(event)) for event in events] == events
    assert all(call.index is not None and call.args == pieces[call.index] and call.id for call in decoded_calls)
    assert len({call.index for call in decoded_calls}) == len(decoded_calls)


@pytest.mark.slow
@pytest.mark.parametrize('make', DECODERS)
@given(stream=streams)
def test_calls_are_removed_from_any_json(make: Callable[[], SomeDecoder], stream: list[JsonValue]) -> None:
    """The remaining frames contain no calls."""
    decoder = make()
    frames = [Frame(data=json.dumps(body)) for body in stream]
    kept = [frame for frame in map(decoder.remove_calls, frames) if frame]
    reader = make()

    assert not any(event.type.startswith('tool_call') for frame in kept for event in reader.decode(frame))


@pytest.mark.parametrize('make', DECODERS)
@given(text=st.text())
def test_any_text_is_decoded(make: Callable[[], SomeDecoder], text: str) -> None:
    decoder = make()

    assert decoder.remove_calls(Frame(data=text)) == Frame(data=text)
    assert len([*decoder.decode(Frame(data=text)), *decoder.finish()]) <= 2


@pytest.mark.parametrize('make', DECODERS)
def test_deeply_nested_json_is_decoded(make: Callable[[], SomeDecoder]) -> None:
    """Python's JSON parser and its encoder stop at about a thousand levels, but not at the same one."""
    for depth in range(900, 1000):
        nested = '[' * depth + ']' * depth
        for data in (
            f'{{"choices": [{{"delta": {{"tool_calls": [{{"function": {{"arguments": "" }} }}]}}, "x": {nested}}}]}}',
            f'{{"type": "content_block_start", "content_block": {{"type": "tool_use", "input": {nested}}}}}',
            f'{{"candidates": [{{"content": {{"parts": [{{"functionCall": {{"args": {nested}}}}}]}}}}]}}',
        ):
            decoder = make()
            if not any(event.type == 'error' for event in decoder.decode(Frame(data=data))):
                decoder.remove_calls(Frame(data=data))


@pytest.mark.parametrize('data', ['{"choices": [', '[]', '5', 'null', '"text"', '{"x": NaN}', '[' * 100_000])
def test_invalid_json_is_malformed_and_ends_the_answer(data: str) -> None:
    """004-32: partial JSON is an error. Later frames are ignored, because the answer would be incomplete."""
    decoder = OpenaiDecoder()
    (event,) = decoder.decode(Frame(data=data))

    assert isinstance(event, ErrorEvent)
    assert event.kind == 'malformed'
    assert len(event.message) < 400
    assert decoder.decode(Frame(data='{"choices":[{"delta":{"content":"on"}}]}')) == []
    assert decoder.finish() == ()


def test_frames_without_data_are_ignored() -> None:
    assert OpenaiDecoder().decode(Frame(event='ping')) == []
