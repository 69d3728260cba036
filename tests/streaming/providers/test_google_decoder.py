"""`GoogleDecoder`, with streams like the documented ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from pydantic_deep.streaming import (
    EndEvent,
    ErrorEvent,
    Frame,
    FrameReader,
    GoogleDecoder,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    UsageEvent,
)

ID = 'mAitaLmkHPPlz7IPvtfUqQ4'
START = StartEvent(id=ID, model='gemini-3-pro')
TEXTS = [TextEvent(text=text) for text in ('Grüße', ' aus', ' 北京', ' 🎉', '!')]


def usage(output_tokens: int) -> UsageEvent:
    return UsageEvent(input_tokens=30, output_tokens=output_tokens, cache_read_tokens=10, requests=1)


def frames_of(name: str) -> list[Frame]:
    return FrameReader().feed((Path(__file__).parents[1] / 'streams' / f'google_{name}.sse').read_bytes())


def decode(frames: list[Frame]) -> list[StreamEvent]:
    decoder = GoogleDecoder()
    events = [event for frame in frames for event in decoder.decode(frame)]
    return [*events, *decoder.finish()]


def chunk(*parts: JsonValue, **fields: JsonValue) -> JsonValue:
    candidate: JsonValue = {'content': {'parts': [*parts], 'role': 'model'}, **fields}
    return {'candidates': [candidate]}


def decode_bodies(*bodies: JsonValue) -> list[StreamEvent]:
    return decode([Frame(data=json.dumps(body)) for body in bodies])


def test_usage_in_every_chunk_drops_no_text() -> None:
    """peers, streaming proxies: text dropped where usage is on every chunk (Gemini). 004-28: `candidates/parts`."""
    events = decode(frames_of('text'))

    assert [event for event in events if isinstance(event, TextEvent)] == TEXTS
    assert events[:3] == [START, TEXTS[0], usage(1)]
    assert events[-2:] == [usage(7), EndEvent()]


def test_calls_and_thoughts_are_decoded() -> None:
    """A call without an id gets a stable one. Output tokens include thinking."""
    assert decode(frames_of('tools')) == [
        START,
        ThinkingEvent(text='Two cities.'),
        usage(12),
        TextEvent(text='Let me look.'),
        usage(16),
        ThinkingEvent(text='', signature='CpcBAVKiVKdJ'),
        ToolCallDeltaEvent(index=0, id=f'{ID}-0', name='get_weather', args='{"city":"Paris"}'),
        ToolCallEvent(id=f'{ID}-0', name='get_weather', args='{"city":"Paris"}', index=0),
        ToolCallDeltaEvent(index=1, id='call-rome', name='get_weather', args='{"city":"Rome"}'),
        ToolCallEvent(id='call-rome', name='get_weather', args='{"city":"Rome"}', index=1),
        usage(42),
        ToolCallDeltaEvent(index=2, id=f'{ID}-2', name='get_time', args='{}'),
        ToolCallEvent(id=f'{ID}-2', name='get_time', args='{}', index=2),
        usage(52),
        EndEvent(finish_reason='tool_call'),
    ]


def test_generated_ids_are_stable() -> None:
    assert decode(frames_of('tools')) == decode(frames_of('tools'))


def test_text_and_calls_of_one_chunk_are_emitted_in_order() -> None:
    events = decode(frames_of('mixed_chunk'))

    assert [event.type for event in events] == ['start', 'text', 'tool_call_delta', 'tool_call', 'text', 'usage', 'end']


def test_blocked_prompt_ends_with_content_filter() -> None:
    assert decode(frames_of('blocked')) == [
        START,
        UsageEvent(input_tokens=30, requests=1),
        EndEvent(finish_reason='content_filter'),
    ]


def test_nothing_follows_an_error_frame() -> None:
    message = 'The provider failed: The model is overloaded. Please try again later.'

    assert decode(frames_of('error')) == [
        START,
        TEXTS[0],
        usage(1),
        ErrorEvent(kind='provider_error', message=message, status=503),
    ]


def test_incomplete_stream_is_truncated() -> None:
    events = decode(frames_of('truncated'))

    assert [event for event in events if isinstance(event, TextEvent)] == TEXTS[:3]
    assert events[-1] == ErrorEvent(
        kind='truncated', message='The stream ended before the answer did. Ask again.', status=502
    )


@pytest.mark.parametrize(
    ('reason', 'expected'),
    [
        ('STOP', 'stop'),
        ('MAX_TOKENS', 'length'),
        ('SAFETY', 'content_filter'),
        ('PROHIBITED_CONTENT', 'content_filter'),
        ('MALFORMED_FUNCTION_CALL', 'error'),
        ('A_NEW_ONE', 'error'),
    ],
)
def test_finish_reasons_are_mapped(reason: str, expected: str) -> None:
    end = decode_bodies(chunk(finishReason=reason))[-1]

    assert isinstance(end, EndEvent)
    assert end.finish_reason == expected


def test_unspecified_reason_is_ignored() -> None:
    unspecified: JsonValue = {'promptFeedback': {'blockReason': 'BLOCKED_REASON_UNSPECIFIED'}}

    assert decode_bodies(unspecified, chunk(finishReason='FINISH_REASON_UNSPECIFIED'))[-1].type == 'error'


def test_partial_arguments_are_refused() -> None:
    """They would be emitted as a call with incomplete arguments. No event follows the error."""
    call: JsonValue = {'functionCall': {'name': 'f', 'willContinue': True}}
    events = decode_bodies(chunk({'text': 'Hi'}, call, {'text': 'there'}), chunk(finishReason='STOP'))

    assert [event.type for event in events] == ['start', 'text', 'error']
    assert isinstance(events[-1], ErrorEvent)
    assert events[-1].kind == 'unsupported'


def test_arguments_that_are_not_an_object_are_emitted_unchanged() -> None:
    events = decode_bodies(chunk({'functionCall': {'name': 'f', 'args': ['é']}}), chunk(finishReason='STOP'))

    assert ToolCallEvent(id='call-0', name='f', args='["é"]', index=0) in events


def test_only_the_first_candidate_is_decoded() -> None:
    bodies: JsonValue = {
        'candidates': [
            {'index': 1, 'content': {'parts': [{'text': 'B'}]}, 'finishReason': 'STOP'},
            {'index': 0, 'content': {'parts': [{'text': 'A'}]}},
        ]
    }

    assert [event.type for event in decode_bodies(bodies)] == ['start', 'text', 'error']


def test_chunk_without_candidates_does_not_start_an_answer() -> None:
    assert GoogleDecoder().decode(Frame(data='{"usageMetadata": {}}')) == []


def test_calls_can_be_removed_from_a_frame() -> None:
    decoder = GoogleDecoder()
    call: JsonValue = {'functionCall': {'name': 'f', 'args': {}}}

    def removed(body: JsonValue) -> JsonValue:
        frame = decoder.remove_calls(Frame(data=json.dumps(body)))
        return None if frame is None else json.loads(frame.data)

    frame = Frame(data=json.dumps(chunk({'text': 'a'})))
    assert decoder.remove_calls(frame) is frame
    assert removed(chunk(call)) is None
    assert removed(chunk({'text': 'a'}, call, {'text': 'b'})) == chunk({'text': 'a'}, {'text': 'b'})
    assert removed(chunk(call, finishReason='STOP')) == chunk(finishReason='STOP')
    assert removed({'candidates': [{'content': {'parts': [call]}}], 'usageMetadata': {'promptTokenCount': 1}}) == {
        'candidates': [{'content': {'parts': []}}],
        'usageMetadata': {'promptTokenCount': 1},
    }
