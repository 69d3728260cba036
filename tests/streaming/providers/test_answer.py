"""What clients of any provider's API are told of a run, whatever the format: 004-12, 004-22, C24."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pydantic_deep.approvals import Preview
from pydantic_deep.streaming import (
    AnswerEncoder,
    AnthropicEncoder,
    ApprovalRequiredEvent,
    BudgetEvent,
    Encoder,
    EndEvent,
    ErrorEvent,
    Frame,
    GoogleEncoder,
    NoticeEvent,
    OpenaiEncoder,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    TodosEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
    anthropic_message,
    google_response,
    openai_completion,
)
from tests.streaming.conftest import waiting

CALL = ToolCallEvent(id='c', name='ls', args='{"path":"/"}', index=0)
RESULT = ToolResultEvent(id='c', name='ls', outcome='success', content='secret')
END = EndEvent(status='complete')
VOID = '\n\n[What stands above is void: the answer begins anew.]\n\n'

encoders = pytest.mark.parametrize('make', [OpenaiEncoder, AnthropicEncoder, GoogleEncoder])
Make = Callable[..., AnswerEncoder]
BODIES: dict[Any, Callable[..., dict[str, Any]]] = {
    OpenaiEncoder: openai_completion,
    AnthropicEncoder: anthropic_message,
    GoogleEncoder: google_response,
}


def encode(encoder: AnswerEncoder, events: Sequence[StreamEvent]) -> list[Frame]:
    return [*(frame for event in events for frame in encoder.encode(event)), *encoder.finish()]


def streamed(make: Make, *events: StreamEvent, **options: Any) -> str:
    """Return the text that a client has in the end."""
    encoder = make(**options)
    encode(encoder, events)
    return encoder.text


def whole(make: Make, *events: StreamEvent) -> str:
    """Return the text of an answer that is not streamed."""
    body = BODIES[make](events)
    match make.__name__:
        case 'OpenaiEncoder':
            return body['choices'][0]['message']['content'] or ''
        case 'AnthropicEncoder':
            return ''.join(block['text'] for block in body['content'] if block['type'] == 'text')
        case _:
            return ''.join(part.get('text', '') for part in body['candidates'][0]['content']['parts'])


@encoders
def test_an_encoder_is_one(make: Make) -> None:
    """004-29: whoever adds a format implements the same."""
    assert isinstance(make(), Encoder)


@encoders
def test_what_tools_do_is_hidden(make: Make) -> None:
    """004-22: results are not shown to the user."""
    events = [
        StartEvent(),
        ThinkingEvent(text='hidden'),
        ToolCallDeltaEvent(index=0, id='c', name='hidden'),
        CALL,
        NoticeEvent(text='hidden'),
        RESULT,
        TodosEvent(todos=[]),
        BudgetEvent(kind='warning', measure='tokens'),
        TextEvent(text='hidden', path=['helper']),
        ThinkingEvent(text='hidden', path=['helper']),
        ToolCallEvent(id='c/d', name='hidden', args='{}', path=['helper']),
        TextEvent(text='Done'),
        UsageEvent(input_tokens=3),
        END,
    ]
    shown = ''.join(frame.data for frame in encode(make(), events))
    assert 'Done' in shown
    assert not {'hidden', 'secret', 'ls'} & set(shown.replace('"', ' ').split())
    assert json.dumps(BODIES[make](events)).count('hidden') == 0


@encoders
def test_texts_between_calls_are_paragraphs(make: Make) -> None:
    events = [TextEvent(text='Look.'), CALL, RESULT, RESULT, TextEvent(text='Do'), TextEvent(text='ne.'), END]
    assert streamed(make, *events) == whole(make, *events) == 'Look.\n\nDone.'


@encoders
def test_a_text_after_a_call_begins_without_a_blank_line_where_it_is_the_first(make: Make) -> None:
    events = [CALL, RESULT, TextEvent(text='Done.'), END]
    assert streamed(make, *events) == whole(make, *events) == 'Done.'


@encoders
@pytest.mark.parametrize('before', [[], [TextEvent(text='Look.'), CALL, RESULT]])
def test_a_structured_answer_is_told_at_the_end(make: Make, before: list[StreamEvent]) -> None:
    """004-23: the answer is told also where the model has said no word of it."""
    events = [*before, EndEvent(status='complete', output='{"good":true}')]
    assert streamed(make, *events) == whole(make, *events)
    assert streamed(make, *events).endswith('{"good":true}')


@encoders
@pytest.mark.parametrize('after', [[], [CALL, RESULT]])
def test_an_answer_that_was_streamed_is_not_told_twice(make: Make, after: list[StreamEvent]) -> None:
    events = [TextEvent(text='Do'), TextEvent(text='ne'), *after, EndEvent(status='complete', output='Done')]
    assert streamed(make, *events) == whole(make, *events) == 'Done'


@encoders
def test_words_that_do_not_count_are_followed_by_a_mark(make: Make) -> None:
    """No format can take words back; an answer that is not streamed leaves them out."""
    events = [
        TextEvent(text='First.'),
        CALL,
        RESULT,
        TextEvent(text='Hel'),
        RetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=0, void_text='Hel'),
        TextEvent(text='Hello'),
        END,
    ]
    assert streamed(make, *events) == f'First.\n\nHel{VOID}Hello'
    assert whole(make, *events) == 'First.\n\nHello'


@encoders
def test_a_void_beginning_leaves_nothing(make: Make) -> None:
    events = [
        TextEvent(text='Hel'),
        RetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=0, void_text='Hel'),
        TextEvent(text='Hi'),
        END,
    ]
    assert whole(make, *events) == 'Hi'


@encoders
def test_what_a_retry_voids_in_a_subagent_concerns_nobody(make: Make) -> None:
    nested = RetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=0, void_text='Hel', path=['helper'])
    assert streamed(make, TextEvent(text='Hel'), nested, END) == 'Hel'


@encoders
def test_the_first_error_is_the_last_that_is_told(make: Make) -> None:
    """Peers: every failure ended as a normal stop."""
    encoder = make()
    failed = [ErrorEvent(kind='run_failed', message='No.'), EndEvent(finish_reason='error', status='failed')]
    told = encode(encoder, [TextEvent(text='Hel'), *failed, TextEvent(text='lo')])
    assert 'No.' in told[-1].data
    assert encoder.text == 'Hel'


@encoders
@pytest.mark.parametrize(
    'end', [EndEvent(finish_reason='error'), EndEvent(status='failed'), EndEvent(status='interrupted')]
)
def test_a_bad_end_is_an_error(make: Make, end: EndEvent) -> None:
    told = encode(make(), [TextEvent(text='Hel'), end])
    assert 'The run ended before its answer.' in told[-1].data
    assert 'The run ended before its answer.' in json.dumps(BODIES[make]([TextEvent(text='Hel'), end]))


@encoders
def test_a_stream_that_breaks_off_is_an_error(make: Make) -> None:
    told = encode(make(), [TextEvent(text='Hel')])
    assert 'The stream ended before it was complete' in told[-1].data
    assert 'The stream ended before it was complete' in json.dumps(BODIES[make]([TextEvent(text='Hel')]))


@encoders
def test_nothing_is_told_after_the_end(make: Make) -> None:
    encoder = make()
    encode(encoder, [TextEvent(text='Hi'), END])
    assert encoder.encode(TextEvent(text='more')) == []


@encoders
def test_a_second_start_changes_nothing(make: Make) -> None:
    told = encode(make(), [StartEvent(id='one', model='m'), StartEvent(id='two'), TextEvent(text='Hi'), END])
    assert 'two' not in str(told)
    assert 'one' in told[0].data


@encoders
def test_what_waits_is_a_call_with_all_that_a_person_needs(make: Make) -> None:
    """C24: the answer ends with a call for each approval."""
    preview = Preview(kind='command', text='rm -r /tmp/x')
    helper = waiting('a/b', path=('helper',), tool='execute', preview=preview, command='rm -r /tmp/x')
    approvals = [helper, waiting('c', tool='pay', amount=1)]
    events = [
        TextEvent(text='May I?'),
        ApprovalRequiredEvent(approvals=approvals),
        EndEvent(finish_reason='tool_call', status='awaiting_approval'),
    ]
    told = json.dumps(BODIES[make](events))
    for shown in (told, ''.join(frame.data for frame in encode(make(), events))):
        assert shown.count('approval_required') == 2
        plain = shown.replace('\\', '')
        assert '"approval_id":"a/b"' in plain.replace(': ', ':')
        packed = plain.replace(': ', ':').replace(', ', ',')
        assert '"path":["helper"],"view":{"path":[["helper"]],"tool":["execute"],"arguments":[{' in packed
        assert '"preview":{"kind":"command","notice":[""],"text":["rm -r /tmp/x"],"diff":null}' in packed
        assert '"preview":null' in packed
        assert all(f'"digest":"{each.view.digest}"' in packed for each in approvals)
