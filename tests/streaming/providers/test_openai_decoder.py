"""`OpenaiDecoder`, with streams like the documented ones."""

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
    OpenaiDecoder,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    UsageEvent,
)

START = StartEvent(id='chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG', model='gpt-4o-2024-08-06')
TEXTS = [TextEvent(text=text) for text in ('Grüße', ' aus', ' 北京', ' 🎉', '!')]
TRUNCATED = ErrorEvent(kind='truncated', message='The stream ended before the answer did. Ask again.', status=502)

ERRORS: list[tuple[JsonValue, str, int | None]] = [
    ({'error': 'Out of memory'}, 'The provider failed: Out of memory', None),
    ({'error': {'type': 'server_error', 'code': 'overloaded'}}, 'The provider failed: server_error', None),
    ({'error': {'code': 502, 'message': 'Bad gateway'}}, 'The provider failed: Bad gateway', 502),
    ({'error': {'code': 7, 'message': 'Seven'}}, 'The provider failed: Seven', None),
    ({'error': [5]}, 'The provider failed: it did not say why.', None),
    ({'error': [[]]}, 'The provider failed: it did not say why.', None),
    ({'error': 'x' * 5000}, f'The provider failed: {"x" * 2000}', None),
    ({'type': 'error', 'message': 'No.'}, 'The provider failed: No.', None),
]


def decode(stream: bytes) -> list[StreamEvent]:
    decoder = OpenaiDecoder()
    events = [event for frame in FrameReader().feed(stream) for event in decoder.decode(frame)]
    return [*events, *decoder.finish()]


def decode_file(name: str) -> list[StreamEvent]:
    return decode((Path(__file__).parents[1] / 'streams' / f'openai_{name}.sse').read_bytes())


def decode_chunks(*chunks: JsonValue) -> list[StreamEvent]:
    return decode(''.join(f'data: {json.dumps(chunk)}\n\n' for chunk in chunks).encode())


def delta(_finish_reason: str | None = None, **fields: JsonValue) -> JsonValue:
    return {'id': 'x', 'choices': [{'index': 0, 'delta': fields, 'finish_reason': _finish_reason}]}


def piece(index: int | None, id: str | None, name: str | None, arguments: str) -> JsonValue:
    return {'index': index, 'id': id, 'function': {'name': name, 'arguments': arguments}}


def calls(events: list[StreamEvent]) -> list[ToolCallEvent]:
    return [event for event in events if isinstance(event, ToolCallEvent)]


@pytest.mark.parametrize('name', ['usage_null', 'crlf_no_space'])
def test_null_usage_drops_no_text(name: str) -> None:
    """peers, streaming proxies: text dropped when a chunk carries `"usage": null`."""
    usage = UsageEvent(input_tokens=21, output_tokens=7, cache_read_tokens=5, requests=1)

    assert decode_file(name) == [START, *TEXTS, usage, EndEvent()]


def test_usage_in_every_chunk_drops_no_text() -> None:
    """peers, streaming proxies: text dropped where usage is on every chunk."""
    events = decode_file('usage_every_chunk')

    assert [event for event in events if isinstance(event, TextEvent)] == TEXTS
    assert [event.output_tokens for event in events if isinstance(event, UsageEvent)] == [1, 2, 3, 4, 5, 6, 7]
    assert events[-1] == EndEvent()


def test_interleaved_calls_are_emitted_in_order() -> None:
    """004-31: deltas of two calls alternate. Each call is emitted when complete, in order."""
    events = decode_file('tools_interleaved')

    assert events == [
        START,
        TextEvent(text='Let me look.'),
        ToolCallDeltaEvent(index=0, id='call_paris', name='get_weather', args='{"ci'),
        ToolCallDeltaEvent(index=1, id='call_rome', name='get_weather'),
        ToolCallDeltaEvent(index=0, args='ty":"Pa'),
        ToolCallDeltaEvent(index=1, args='{"city":'),
        ToolCallDeltaEvent(index=0, args='ris"}'),
        ToolCallDeltaEvent(index=1, args='"Rome"}'),
        ToolCallEvent(id='call_paris', name='get_weather', args='{"city":"Paris"}', index=0),
        ToolCallEvent(id='call_rome', name='get_weather', args='{"city":"Rome"}', index=1),
        UsageEvent(input_tokens=80, output_tokens=40, requests=1),
        EndEvent(finish_reason='tool_call'),
    ]


def test_call_that_starts_late_is_emitted_in_its_place() -> None:
    """004-31: the second call of the answer arrives first."""
    events = decode_chunks(
        delta(tool_calls=[piece(1, 'b', 'second', '{}')]),
        delta(tool_calls=[piece(0, 'a', 'first', '{}')]),
        delta('stop'),
    )

    assert [(call.index, call.id) for call in calls(events)] == [(0, 'a'), (1, 'b')]


def test_arguments_of_the_first_delta_count_once() -> None:
    """peers, streaming proxies: arguments doubled when the first delta already has them."""
    assert decode_file('tools_whole_in_one') == [
        START,
        ToolCallDeltaEvent(index=0, id='call_paris', name='get_weather', args='{"city":"Paris"}'),
        ToolCallEvent(id='call_paris', name='get_weather', args='{"city":"Paris"}', index=0),
        EndEvent(finish_reason='tool_call'),
    ]


def test_repeated_id_and_name_do_not_start_another_call() -> None:
    events = decode_chunks(
        delta(tool_calls=[piece(0, 'a', 'f', '{')]), delta(tool_calls=[piece(0, 'a', 'f', '}')]), delta('tool_calls')
    )

    assert calls(events) == [ToolCallEvent(id='a', name='f', args='{}', index=0)]


@pytest.mark.parametrize('index', [0, None])
def test_calls_without_distinct_indexes_are_distinguished_by_id(index: int | None) -> None:
    """Some servers send index 0 for every call, or none."""
    events = decode_chunks(
        delta(tool_calls=[piece(index, 'a', 'f', '{}'), piece(index, 'b', 'f', '[')]),
        delta(tool_calls=[piece(index, None, None, ']')]),
        delta('tool_calls'),
    )

    assert [(call.id, call.args, call.index) for call in calls(events)] == [('a', '{}', 0), ('b', '[]', 1)]


def test_call_without_arguments_has_an_empty_object() -> None:
    events = decode_chunks(delta(tool_calls=[piece(0, 'a', 'f', '')]), delta('tool_calls'))

    assert calls(events) == [ToolCallEvent(id='a', name='f', args='{}', index=0)]
    assert ToolCallDeltaEvent(index=0, args='{}') in events


def test_deltas_after_the_end_of_the_calls_are_ignored() -> None:
    events = decode_chunks(
        delta(tool_calls=[piece(0, 'a', 'f', '{}')]), delta('tool_calls'), delta(tool_calls=[piece(0, None, None, '!')])
    )

    assert calls(events) == [ToolCallEvent(id='a', name='f', args='{}', index=0)]


def test_legacy_function_call_is_decoded() -> None:
    events = decode_file('function_call')
    id = f'{START.id}-0'

    assert calls(events) == [ToolCallEvent(id=id, name='get_weather', args='{"city":"Paris"}', index=0)]
    assert events[-1] == EndEvent(finish_reason='tool_call')


def test_refusal_is_text_and_ends_with_content_filter() -> None:
    assert decode_file('refusal') == [
        START,
        TextEvent(text="I'm sorry,"),
        TextEvent(text=' I cannot.'),
        EndEvent(finish_reason='content_filter'),
    ]


def test_reasoning_is_thinking_and_comments_are_ignored() -> None:
    assert decode_file('reasoning') == [
        START,
        ThinkingEvent(text='Hm'),
        ThinkingEvent(text='.'),
        TextEvent(text='Yes.'),
        EndEvent(finish_reason='length'),
    ]


def test_prompt_filter_results_do_not_start_an_answer() -> None:
    assert decode_file('azure_filters') == [START, TextEvent(text='Once'), EndEvent(finish_reason='content_filter')]


def test_nothing_follows_an_error() -> None:
    """peers, streaming proxies: every failure ends as a normal `stop` and `[DONE]`."""
    message = 'The provider failed: The server had an error while processing your request.'

    assert decode_file('error') == [START, *TEXTS[:2], ErrorEvent(kind='provider_error', message=message)]


@pytest.mark.parametrize(
    ('error', 'message', 'status'),
    ERRORS,
)
def test_errors_of_any_shape_are_emitted(error: JsonValue, message: str, status: int | None) -> None:
    assert decode_chunks(error) == [ErrorEvent(kind='provider_error', message=message, status=status)]


def test_error_frame_with_plain_text_is_an_error() -> None:
    events = decode(b'event: error\ndata: Internal Server Error\n\n')

    assert events == [ErrorEvent(kind='provider_error', message='The provider failed: Internal Server Error')]


def test_text_that_arrives_with_an_error_is_emitted() -> None:
    chunk: JsonValue = {
        'choices': [{'delta': {'content': 'Hi'}, 'finish_reason': 'error'}],
        'error': {'message': 'Cut.'},
    }

    assert [event.type for event in decode_chunks(chunk)] == ['start', 'text', 'error']


def test_incomplete_stream_is_truncated() -> None:
    assert decode_file('truncated') == [START, *TEXTS[:3], TRUNCATED]


def test_calls_of_a_truncated_stream_are_not_emitted() -> None:
    events = decode_chunks(delta(tool_calls=[piece(0, 'a', 'rm', '{"path":"/"')]))

    assert [event.type for event in events] == ['start', 'tool_call_delta', 'error']


def test_finish_reason_is_sufficient_without_done() -> None:
    assert decode_chunks(delta(content='Hi'), delta('stop'))[-1] == EndEvent()


def test_done_ends_an_answer_without_a_finish_reason() -> None:
    decoder = OpenaiDecoder()

    assert decoder.decode(Frame(data='[DONE]')) == [EndEvent()]
    assert decoder.decode(Frame(data='{"error": "late"}')) == []
    assert decoder.finish() == ()


@pytest.mark.parametrize(
    ('reason', 'expected'),
    [
        ('stop', 'stop'),
        ('length', 'length'),
        ('content_filter', 'content_filter'),
        ('tool_calls', 'tool_call'),
        ('function_call', 'tool_call'),
        ('insufficient_system_resource', 'error'),
    ],
)
def test_finish_reasons_are_mapped(reason: str, expected: str) -> None:
    """An unknown reason is never reported as a normal end."""
    end = decode_chunks(delta(reason))[-1]

    assert isinstance(end, EndEvent)
    assert end.finish_reason == expected


def test_stop_with_calls_is_reported_as_tool_call() -> None:
    events = decode_chunks(delta(tool_calls=[piece(0, 'a', 'f', '{}')]), delta('stop'))

    assert events[-1] == EndEvent(finish_reason='tool_call')


def test_length_with_an_unfinished_call_stays_length() -> None:
    events = decode_chunks(delta(tool_calls=[piece(0, 'a', 'f', '{"x')]), delta('length'))

    assert events[-1] == EndEvent(finish_reason='length')


def test_only_the_first_choice_is_decoded() -> None:
    chunk: JsonValue = {
        'id': 'x',
        'choices': [{'index': 1, 'delta': {'content': 'B'}}, {'index': 0, 'delta': {'content': 'A'}}],
    }

    assert [event for event in decode_chunks(chunk) if isinstance(event, TextEvent)] == [TextEvent(text='A')]


def test_lone_surrogate_is_replaced() -> None:
    """JSON can contain one, but no encoding can."""
    events = decode(b'data: {"choices":[{"delta":{"content":"a\\ud83d"}},{"delta":{"content":"\\ud83c\\udf89"}}]}\n\n')

    assert [event.text for event in events if isinstance(event, TextEvent)] == ['a�', '🎉']


def test_calls_can_be_removed_from_a_frame() -> None:
    decoder = OpenaiDecoder()
    call = piece(0, 'a', 'f', '{}')
    mixed = Frame(data=json.dumps(delta(role='assistant', content='Hi', tool_calls=[call])), id='7')

    def removed(chunk: JsonValue) -> Frame | None:
        return decoder.remove_calls(Frame(data=json.dumps(chunk)))

    assert decoder.remove_calls(Frame(data='[DONE]')) == Frame(data='[DONE]')
    assert removed(delta(content='Hi')) == Frame(data=json.dumps(delta(content='Hi')))
    assert removed(delta(role='assistant', content=None, tool_calls=[call])) is None
    assert removed(delta(function_call={'name': 'f'})) is None
    without = decoder.remove_calls(mixed)
    assert without is not None
    assert without.id == '7'
    assert json.loads(without.data)['choices'][0]['delta'] == {'role': 'assistant', 'content': 'Hi'}
    with_reason = removed(delta('tool_calls', tool_calls=[call]))
    assert with_reason is not None
    assert json.loads(with_reason.data) == delta('tool_calls')
    assert removed({'choices': [{'delta': {'tool_calls': [call]}}], 'usage': {'prompt_tokens': 1}}) == Frame(
        data='{"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}'
    )
