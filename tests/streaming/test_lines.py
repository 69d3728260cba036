"""The face for server-sent events: 004-20 to 004-22, C24, C25."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from pydantic_ai.exceptions import UserError

from pydantic_deep.streaming import (
    NOTICE,
    STREAM_EVENTS,
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    EventEncoder,
    Frame,
    FrameReader,
    OpenaiEncoder,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
    iter_lines,
    render_event,
)

from .conftest import waiting

pytestmark = pytest.mark.anyio

END = EndEvent(status='complete', output='x')
TASK = ToolCallEvent(id='c', name='ls', args='{}', index=0)
PIECE = ToolCallDeltaEvent(index=0, id='c', name='ls')
RESULT = ToolResultEvent(id='c', name='ls', outcome='success', content='secret')


async def source(events: Sequence[StreamEvent], error: Exception | None = None) -> AsyncGenerator[StreamEvent]:
    for event in events:
        yield event
    if error is not None:
        raise error


async def frames(*events: StreamEvent, error: Exception | None = None, **options: Any) -> list[Frame]:
    """Return the frames of these events, after their way over the wire."""
    lines = [line async for line in iter_lines(source(events, error), **options)]
    return FrameReader().feed(''.join(lines).encode())


def names(told: Sequence[Frame]) -> list[str | None]:
    return [frame.event for frame in told]


async def test_text_is_told_as_it_comes() -> None:
    """004-20: the user reads the text while it comes."""
    told = await frames(StartEvent(), TextEvent(text='Hel'), TextEvent(text='lo'), END)
    assert names(told) == ['start', 'text', 'text', 'end']
    assert ''.join(json.loads(frame.data)['text'] for frame in told[1:3]) == 'Hello'


async def test_every_frame_is_an_event_that_can_be_read_again() -> None:
    events: list[StreamEvent] = [StartEvent(id='r'), TextEvent(text='a\nb'), UsageEvent(requests=1), END]
    assert [STREAM_EVENTS.validate_json(frame.data) for frame in await frames(*events)] == events


async def test_tools_are_hidden_and_a_notice_stands_for_them() -> None:
    """004-21, 004-22: a placeholder is told, results are not shown."""
    told = await frames(PIECE, TASK, RESULT, TextEvent(text='x'), END)
    assert names(told) == ['notice', 'text', 'end']
    assert json.loads(told[0].data)['text'] == NOTICE
    assert 'secret' not in str(told)


async def test_a_notice_is_told_once_for_each_batch_of_calls() -> None:
    second = ToolCallEvent(id='d', name='ls', args='{}', index=1)
    third = ToolCallEvent(id='e', name='ls', args='{}')
    told = await frames(TASK, second, RESULT, RESULT, PIECE, TASK, TextEvent(text='x'), third, END)
    assert names(told) == ['notice', 'notice', 'text', 'notice', 'end']


async def test_calls_one_after_the_other_are_one_batch() -> None:
    second = ToolCallEvent(id='d', name='ls', args='{}', index=1)
    assert names(await frames(TASK, RESULT, second, RESULT, END)) == ['notice', 'end']


async def test_calls_of_subagents_need_no_notice_of_their_own() -> None:
    nested = ToolCallEvent(id='c/d', name='ls', args='{}', index=0, path=['helper'])
    assert names(await frames(nested, END)) == ['end']


@pytest.mark.parametrize('notice', [None, ''])
async def test_a_notice_can_be_left_out(notice: str | None) -> None:
    assert names(await frames(TASK, END, notice=notice)) == ['end']


async def test_calls_are_told_as_function_calls_to_who_asks() -> None:
    """004-15: `event: function_call` on request, whole calls only."""
    told = await frames(PIECE, TASK, RESULT, END, function_calls=True, notice=None)
    assert names(told) == ['function_call', 'end']
    assert json.loads(told[0].data)['args'] == '{}'


async def test_results_are_told_to_who_asks() -> None:
    assert names(await frames(TASK, RESULT, END, tool_results=True, notice=None)) == ['tool_result', 'end']


async def test_thoughts_and_what_subagents_say_are_hidden() -> None:
    nested = TextEvent(text='Found it', path=['helper'])
    thought = ThinkingEvent(text='Hm')
    assert names(await frames(thought, nested, END)) == ['end']
    assert names(await frames(thought, nested, END, tool_results=True)) == ['text', 'end']
    encoder = EventEncoder(thinking=True)
    assert names(await frames(thought, nested, END, encoder=encoder)) == ['thinking', 'end']
    nested_thought = ThinkingEvent(text='Hm', path=['helper'])
    assert names(await frames(nested_thought, END, encoder=EventEncoder(thinking=True))) == ['end']


async def test_approvals_are_always_told() -> None:
    """C24: approvals are visible whatever else is hidden."""
    required = ApprovalRequiredEvent(approvals=[waiting('c', tool='pay', to=None)])
    told = await frames(required, EndEvent(finish_reason='tool_call', status='awaiting_approval'), notice=None)
    assert names(told) == ['approval_required', 'end']
    assert json.loads(told[0].data)['approvals'][0]['args'] == {'to': None}


async def test_what_does_not_count_is_told() -> None:
    told = await frames(RetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=0, void_text='Hel'), END)
    assert names(told) == ['retried', 'end']


async def test_an_error_is_told_as_one() -> None:
    """004-32: `event: error`."""
    told = await frames(ErrorEvent(kind='run_failed', message='No.'), EndEvent(finish_reason='error', status='failed'))
    assert names(told) == ['error', 'end']


async def test_a_source_that_fails_does_not_end_well() -> None:
    """Peers: every failure ended as a normal stop."""
    told = await frames(TextEvent(text='Hel'), error=UserError('Bad tool.'))
    assert names(told) == ['text', 'error']
    assert json.loads(told[1].data)['message'] == 'Bad tool.'


async def test_a_defect_of_a_source_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger='pydantic_deep'):
        told = await frames(error=KeyError('inside'))
    assert 'inside' not in told[0].data
    assert 'inside' in caplog.text


async def test_a_source_that_breaks_off_does_not_end_well() -> None:
    told = await frames(TextEvent(text='Hel'))
    assert names(told) == ['text', 'error']
    assert json.loads(told[1].data)['kind'] == 'truncated'


async def test_an_encoder_speaks_another_format() -> None:
    encoder = OpenaiEncoder(model='m', id='i', created=1)
    told = await frames(TASK, RESULT, TextEvent(text='x'), END, encoder=encoder)
    assert names(told) == [None] * 4
    assert told[-1].data == '[DONE]'


async def test_an_encoder_is_told_that_a_source_failed() -> None:
    encoder = OpenaiEncoder(model='m', id='i', created=1)
    told = await frames(TextEvent(text='Hi'), error=UserError('Bad tool.'), encoder=encoder)
    assert json.loads(told[-1].data)['error']['message'] == 'Bad tool.'


def test_half_a_character_goes_over_the_wire() -> None:
    event = ToolResultEvent(id='c', name='ls', outcome='success', content='a\ud83d')
    rendered = render_event(event)
    assert rendered.encode()
    assert json.loads(rendered)['content'] == 'a\ud83d'
