"""`AnthropicDecoder`, with streams like the documented ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from pydantic_deep.streaming import (
    AnthropicDecoder,
    EndEvent,
    ErrorEvent,
    Frame,
    FrameReader,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    UsageEvent,
)

START = StartEvent(id='msg_014p7gG3wDgGV9EUtLvnow3U', model='claude-opus-5-5')
TEXTS = [TextEvent(text=text) for text in ('Grüße', ' aus', ' 北京', ' 🎉', '!')]
TRUNCATED = ErrorEvent(kind='truncated', message='The stream ended before the answer did. Ask again.', status=502)


def usage(output_tokens: int) -> UsageEvent:
    return UsageEvent(
        input_tokens=2572, output_tokens=output_tokens, cache_read_tokens=2000, cache_write_tokens=100, requests=1
    )


def frames_of(name: str) -> list[Frame]:
    return FrameReader().feed((Path(__file__).parents[1] / 'streams' / f'anthropic_{name}.sse').read_bytes())


def decode(frames: list[Frame]) -> list[StreamEvent]:
    decoder = AnthropicDecoder()
    events = [event for frame in frames for event in decoder.decode(frame)]
    return [*events, *decoder.finish()]


def decode_bodies(*bodies: JsonValue) -> list[StreamEvent]:
    return decode([Frame(data=json.dumps(body)) for body in bodies])


def begin(index: JsonValue, type: str, **fields: JsonValue) -> JsonValue:
    return {'type': 'content_block_start', 'index': index, 'content_block': {'type': type, **fields}}


def piece(index: JsonValue, partial_json: str) -> JsonValue:
    delta: JsonValue = {'type': 'input_json_delta', 'partial_json': partial_json}
    return {'type': 'content_block_delta', 'index': index, 'delta': delta}


def close(index: JsonValue) -> JsonValue:
    return {'type': 'content_block_stop', 'index': index}


STOP: JsonValue = {'type': 'message_stop'}


def test_cached_tokens_count_as_input() -> None:
    assert decode(frames_of('text')) == [START, usage(2), *TEXTS, usage(12), EndEvent()]


def test_calls_arrive_complete() -> None:
    """peers, streaming proxies: Anthropic tool calls never arrive. 004-28: detected and buffered."""
    assert decode(frames_of('tools')) == [
        START,
        usage(2),
        ThinkingEvent(text='Two cities, '),
        ThinkingEvent(text='two calls.'),
        ThinkingEvent(text='', signature='EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds'),
        TextEvent(text='Let me look.'),
        ToolCallDeltaEvent(index=0, id='toolu_01', name='get_weather'),
        ToolCallDeltaEvent(index=0, args='{"city":'),
        ToolCallDeltaEvent(index=0, args=' "Paris"}'),
        ToolCallEvent(id='toolu_01', name='get_weather', args='{"city": "Paris"}', index=0),
        ToolCallDeltaEvent(index=1, id='toolu_02', name='get_time'),
        ToolCallDeltaEvent(index=1, args='{}'),
        ToolCallEvent(id='toolu_02', name='get_time', args='{}', index=1),
        usage(89),
        EndEvent(finish_reason='tool_call'),
    ]


def test_interleaved_blocks_are_emitted_in_order() -> None:
    """004-31: the second call completes first, but is emitted after the first one. Text between is not delayed."""
    events = [event for event in decode(frames_of('interleaved')) if isinstance(event, ToolCallEvent | TextEvent)]

    assert events == [
        TextEvent(text='Both.'),
        ToolCallEvent(id='toolu_01', name='get_weather', args='{"city":"Paris"}', index=0),
        ToolCallEvent(id='toolu_02', name='get_weather', args='{"city":"Rome"}', index=1),
    ]


def test_server_tools_are_not_calls() -> None:
    assert decode(frames_of('server_tools')) == [
        START,
        usage(2),
        ThinkingEvent(text='', signature='EmwKAhgBEgy3va3pzix'),
        TextEvent(text='Sunny.'),
        usage(30),
        EndEvent(),
    ]


def test_nothing_follows_an_error_event() -> None:
    """peers, streaming proxies: every failure ends as a normal `stop`."""
    error = ErrorEvent(kind='provider_error', message='The provider failed: Overloaded', status=529)

    assert decode(frames_of('error')) == [START, usage(2), *TEXTS[:3], error]


def test_truncated_stream_is_an_error_without_its_unfinished_call() -> None:
    events = decode(frames_of('truncated'))

    assert events[-1] == TRUNCATED
    assert ToolCallDeltaEvent(index=0, args='{"city":') in events
    assert not any(isinstance(event, ToolCallEvent) for event in events)


def test_tool_input_in_the_block_start_is_used_if_there_are_no_deltas() -> None:
    events = decode_bodies(begin(0, 'tool_use', id='a', name='f', input={'x': 'é'}), close(0), STOP)

    assert [event for event in events if isinstance(event, ToolCallEvent)] == [
        ToolCallEvent(id='a', name='f', args='{"x":"é"}', index=0)
    ]


def test_repeated_tool_input_counts_once() -> None:
    """peers, streaming proxies: arguments doubled when the first delta already has them."""
    events = decode_bodies(begin(0, 'tool_use', id='a', name='f', input={'x': 1}), piece(0, '{"x": 1}'), close(0), STOP)

    assert [event for event in events if isinstance(event, ToolCallEvent)] == [
        ToolCallEvent(id='a', name='f', args='{"x": 1}', index=0)
    ]


def test_unclosed_call_is_emitted_when_the_message_stops() -> None:
    events = decode_bodies(begin(0, 'tool_use', id='a', name='f'), piece(0, '[]'), STOP)

    assert events[-2:] == [ToolCallEvent(id='a', name='f', args='[]', index=0), EndEvent(finish_reason='tool_call')]


def test_call_without_an_id_gets_one() -> None:
    events = decode_bodies(begin(0, 'tool_use', name='f'), close(0), STOP)

    assert ToolCallEvent(id='call-0', name='f', args='{}', index=0) in events


def test_text_and_thinking_in_the_block_start_are_emitted() -> None:
    events = decode_bodies(begin(0, 'text', text='Hi'), begin(1, 'thinking', thinking='Hm', signature='s'), STOP)

    assert events[:-1] == [TextEvent(text='Hi'), ThinkingEvent(text='Hm', signature='s')]


def test_usage_missing_from_a_later_event_is_retained() -> None:
    """Both if it is null and if the key is missing."""
    first: JsonValue = {'input_tokens': 5, 'output_tokens': 1, 'cache_read_input_tokens': 3}
    later: JsonValue = {'input_tokens': None, 'output_tokens': 9, 'server_tool_use': {'web_search_requests': 1}}
    events = decode_bodies(
        {'type': 'message_start', 'message': {'id': 'm', 'model': 'c', 'usage': first}},
        {'type': 'message_delta', 'delta': {'stop_reason': None}, 'usage': later},
    )

    assert events[-2] == UsageEvent(input_tokens=8, output_tokens=9, cache_read_tokens=3, requests=1)


@pytest.mark.parametrize(
    ('reason', 'expected'),
    [
        ('end_turn', 'stop'),
        ('stop_sequence', 'stop'),
        ('max_tokens', 'length'),
        ('model_context_window_exceeded', 'length'),
        ('pause_turn', 'length'),
        ('refusal', 'content_filter'),
        ('tool_use', 'tool_call'),
        ('a_new_one', 'error'),
    ],
)
def test_stop_reasons_are_mapped(reason: str, expected: str) -> None:
    (end,) = decode_bodies({'type': 'message_delta', 'delta': {'stop_reason': reason}}, STOP)

    assert isinstance(end, EndEvent)
    assert end.finish_reason == expected


def test_stop_reason_is_sufficient_without_message_stop() -> None:
    assert decode_bodies({'type': 'message_delta', 'delta': {'stop_reason': 'end_turn'}}) == [EndEvent()]


def test_unknown_types_are_ignored() -> None:
    bodies: list[JsonValue] = [
        {'type': 'new'},
        begin(0, 'new'),
        piece(5, '{}'),
        close(5),
        {'type': 'content_block_delta'},
    ]

    assert decode_bodies(*bodies, STOP) == [EndEvent()]


def test_frames_of_calls_can_be_removed() -> None:
    decoder = AnthropicDecoder()
    frames = frames_of('interleaved')
    kept = [frame for frame in frames if decoder.remove_calls(frame)]

    assert [event for event in decode(kept) if isinstance(event, ToolCallEvent | ToolCallDeltaEvent)] == []
    assert [frame.event for frame in kept] == [
        'message_start',
        'content_block_start',
        'content_block_delta',
        'content_block_stop',
        'message_delta',
        'message_stop',
    ]


def test_frames_of_server_tools_are_not_removed() -> None:
    decoder = AnthropicDecoder()

    assert all(decoder.remove_calls(frame) is frame for frame in frames_of('server_tools'))


def test_block_after_a_removed_one_with_the_same_index_is_preserved() -> None:
    decoder = AnthropicDecoder()
    bodies = [begin(0, 'tool_use'), close(0), begin(0, 'text'), close(0)]

    assert [decoder.remove_calls(Frame(data=json.dumps(body))) is None for body in bodies] == [True, True, False, False]
