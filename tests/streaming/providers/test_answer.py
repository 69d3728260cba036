"""Answers in the format of any provider: 004-12, 004-22, C24."""

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
VOID = '\n\n[Discard the text above: the answer starts again.]\n\n'

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
    """Return the complete text that a client has received."""
    encoder = make(**options)
    encode(encoder, events)
    return encoder.text


def whole(make: Make, *events: StreamEvent) -> str:
    """Return the text of a response without streaming."""
    body = BODIES[make](events)
    match make.__name__:
        case 'OpenaiEncoder':
            return body['choices'][0]['message']['content'] or ''
        case 'AnthropicEncoder':
            return ''.join(block['text'] for block in body['content'] if block['type'] == 'text')
        case _:
            return ''.join(part.get('text', '') for part in body['candidates'][0]['content']['parts'])


@encoders
def test_tool_activity_is_hidden(make: Make) -> None:
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
def test_first_text_after_a_call_has_no_blank_line(make: Make) -> None:
    events = [CALL, RESULT, TextEvent(text='Done.'), END]
    assert streamed(make, *events) == whole(make, *events) == 'Done.'


@encoders
@pytest.mark.parametrize('before', [[], [TextEvent(text='Look.'), CALL, RESULT]])
def test_structured_answer_is_emitted_at_the_end(make: Make, before: list[StreamEvent]) -> None:
    """004-23: the answer is emitted even if the model sent no text."""
    events = [*before, EndEvent(status='complete', output='{"good":true}')]
    assert streamed(make, *events) == whole(make, *events)
    assert streamed(make, *events).endswith('{"good":true}')


@encoders
@pytest.mark.parametrize('after', [[], [CALL, RESULT]])
def test_streamed_answer_is_not_repeated_at_the_end(make: Make, after: list[StreamEvent]) -> None:
    events = [TextEvent(text='Do'), TextEvent(text='ne'), *after, EndEvent(status='complete', output='Done')]
    assert streamed(make, *events) == whole(make, *events) == 'Done'


@encoders
def test_void_text_is_followed_by_a_marker(make: Make) -> None:
    """No format can retract text. A response without streaming omits it."""
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
def test_void_text_at_the_start_is_omitted(make: Make) -> None:
    events = [
        TextEvent(text='Hel'),
        RetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=0, void_text='Hel'),
        TextEvent(text='Hi'),
        END,
    ]
    assert whole(make, *events) == 'Hi'


@encoders
def test_retry_in_a_subagent_voids_no_text(make: Make) -> None:
    nested = RetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=0, void_text='Hel', path=['helper'])
    assert streamed(make, TextEvent(text='Hel'), nested, END) == 'Hel'


@encoders
def test_nothing_is_emitted_after_the_first_error(make: Make) -> None:
    """Peers: every failure ended as a normal stop."""
    encoder = make()
    failed = [ErrorEvent(kind='run_failed', message='No.'), EndEvent(finish_reason='error', status='failed')]
    output = encode(encoder, [TextEvent(text='Hel'), *failed, TextEvent(text='lo')])
    assert 'No.' in output[-1].data
    assert encoder.text == 'Hel'


@encoders
@pytest.mark.parametrize(
    'end', [EndEvent(finish_reason='error'), EndEvent(status='failed'), EndEvent(status='interrupted')]
)
def test_unsuccessful_end_is_an_error(make: Make, end: EndEvent) -> None:
    output = encode(make(), [TextEvent(text='Hel'), end])
    assert 'The run ended before its answer.' in output[-1].data
    assert 'The run ended before its answer.' in json.dumps(BODIES[make]([TextEvent(text='Hel'), end]))


@encoders
def test_incomplete_stream_is_an_error(make: Make) -> None:
    output = encode(make(), [TextEvent(text='Hel')])
    assert 'The stream ended before it was complete' in output[-1].data
    assert 'The stream ended before it was complete' in json.dumps(BODIES[make]([TextEvent(text='Hel')]))


@encoders
def test_nothing_is_emitted_after_the_end(make: Make) -> None:
    encoder = make()
    encode(encoder, [TextEvent(text='Hi'), END])
    assert encoder.encode(TextEvent(text='more')) == []


@encoders
def test_second_start_is_ignored(make: Make) -> None:
    output = encode(make(), [StartEvent(id='one', model='m'), StartEvent(id='two'), TextEvent(text='Hi'), END])
    assert 'two' not in str(output)
    assert 'one' in output[0].data


@encoders
def test_approval_is_a_call_with_its_details(make: Make) -> None:
    """C24: the answer ends with a call for each approval."""
    preview = Preview(kind='command', text='rm -r /tmp/x')
    helper = waiting('a/b', path=('helper',), tool='execute', preview=preview, command='rm -r /tmp/x')
    approvals = [helper, waiting('c', tool='pay', amount=1)]
    events = [
        TextEvent(text='May I?'),
        ApprovalRequiredEvent(approvals=approvals),
        EndEvent(finish_reason='tool_call', status='awaiting_approval'),
    ]
    output = json.dumps(BODIES[make](events))
    for shown in (output, ''.join(frame.data for frame in encode(make(), events))):
        assert shown.count('approval_required') == 2
        plain = shown.replace('\\', '')
        assert '"approval_id":"a/b"' in plain.replace(': ', ':')
        packed = plain.replace(': ', ':').replace(', ', ',')
        assert '"path":["helper"],"view":{"path":[["helper"]],"tool":["execute"],"arguments":[{' in packed
        assert '"preview":{"kind":"command","notice":[""],"text":["rm -r /tmp/x"],' in packed
        assert '"choices":[],"fields":[],"link":[""],"diff":null}' in packed
        assert '"preview":null' in packed
        assert all(f'"digest":"{each.view.digest}"' in packed for each in approvals)
