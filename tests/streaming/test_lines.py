"""Server-sent events of a run: 004-20 to 004-22, C24, C25."""

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
    """Return the frames of these events after rendering and parsing."""
    lines = [line async for line in iter_lines(source(events, error), **options)]
    return FrameReader().feed(''.join(lines).encode())


def names(received: Sequence[Frame]) -> list[str | None]:
    return [frame.event for frame in received]


async def test_text_deltas_are_streamed() -> None:
    """004-20: text chunks are yielded as they arrive."""
    received = await frames(StartEvent(), TextEvent(text='Hel'), TextEvent(text='lo'), END)
    assert names(received) == ['start', 'text', 'text', 'end']
    assert ''.join(json.loads(frame.data)['text'] for frame in received[1:3]) == 'Hello'


async def test_frames_can_be_parsed_as_events() -> None:
    events: list[StreamEvent] = [StartEvent(id='r'), TextEvent(text='a\nb'), UsageEvent(requests=1), END]
    assert [STREAM_EVENTS.validate_json(frame.data) for frame in await frames(*events)] == events


async def test_tool_calls_are_hidden_behind_a_notice() -> None:
    """004-21, 004-22: a placeholder is yielded, and results are not shown."""
    received = await frames(PIECE, TASK, RESULT, TextEvent(text='x'), END)
    assert names(received) == ['notice', 'text', 'end']
    assert json.loads(received[0].data)['text'] == NOTICE
    assert 'secret' not in str(received)


async def test_notice_is_emitted_once_per_batch_of_calls() -> None:
    second = ToolCallEvent(id='d', name='ls', args='{}', index=1)
    third = ToolCallEvent(id='e', name='ls', args='{}')
    received = await frames(TASK, second, RESULT, RESULT, PIECE, TASK, TextEvent(text='x'), third, END)
    assert names(received) == ['notice', 'notice', 'text', 'notice', 'end']


async def test_consecutive_calls_are_one_batch() -> None:
    second = ToolCallEvent(id='d', name='ls', args='{}', index=1)
    assert names(await frames(TASK, RESULT, second, RESULT, END)) == ['notice', 'end']


async def test_calls_of_subagents_have_no_notice() -> None:
    nested = ToolCallEvent(id='c/d', name='ls', args='{}', index=0, path=['helper'])
    assert names(await frames(nested, END)) == ['end']


@pytest.mark.parametrize('notice', [None, ''])
async def test_notice_can_be_disabled(notice: str | None) -> None:
    assert names(await frames(TASK, END, notice=notice)) == ['end']


async def test_function_calls_are_emitted_on_request() -> None:
    """004-15: `event: function_call` on request, complete calls only."""
    received = await frames(PIECE, TASK, RESULT, END, function_calls=True, notice=None)
    assert names(received) == ['function_call', 'end']
    assert json.loads(received[0].data)['args'] == '{}'


async def test_tool_results_are_emitted_on_request() -> None:
    assert names(await frames(TASK, RESULT, END, tool_results=True, notice=None)) == ['tool_result', 'end']


async def test_thinking_and_subagent_text_are_hidden_by_default() -> None:
    nested = TextEvent(text='Found it', path=['helper'])
    thought = ThinkingEvent(text='Hm')
    assert names(await frames(thought, nested, END)) == ['end']
    assert names(await frames(thought, nested, END, tool_results=True)) == ['text', 'end']
    encoder = EventEncoder(thinking=True)
    assert names(await frames(thought, nested, END, encoder=encoder)) == ['thinking', 'end']
    nested_thought = ThinkingEvent(text='Hm', path=['helper'])
    assert names(await frames(nested_thought, END, encoder=EventEncoder(thinking=True))) == ['end']


async def test_approvals_are_always_emitted() -> None:
    """C24: approvals are visible even if everything else is hidden."""
    required = ApprovalRequiredEvent(approvals=[waiting('c', tool='pay', to=None)])
    received = await frames(required, EndEvent(finish_reason='tool_call', status='awaiting_approval'), notice=None)
    assert names(received) == ['approval_required', 'end']
    assert json.loads(received[0].data)['approvals'][0]['args'] == {'to': None}


async def test_retries_with_void_text_are_emitted() -> None:
    received = await frames(RetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=0, void_text='Hel'), END)
    assert names(received) == ['retried', 'end']


async def test_error_is_emitted_as_an_error_event() -> None:
    """004-32: `event: error`."""
    received = await frames(
        ErrorEvent(kind='run_failed', message='No.'), EndEvent(finish_reason='error', status='failed')
    )
    assert names(received) == ['error', 'end']


async def test_failing_source_ends_with_an_error() -> None:
    """Peers: every failure ended as a normal stop."""
    received = await frames(TextEvent(text='Hel'), error=UserError('Bad tool.'))
    assert names(received) == ['text', 'error']
    assert json.loads(received[1].data)['message'] == 'Bad tool.'


async def test_unexpected_exception_of_a_source_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger='pydantic_deep'):
        received = await frames(error=KeyError('inside'))
    assert 'inside' not in received[0].data
    assert 'inside' in caplog.text


async def test_source_without_an_end_event_ends_with_an_error() -> None:
    received = await frames(TextEvent(text='Hel'))
    assert names(received) == ['text', 'error']
    assert json.loads(received[1].data)['kind'] == 'truncated'


async def test_encoder_changes_the_format() -> None:
    encoder = OpenaiEncoder(model='m', id='i', created=1)
    received = await frames(TASK, RESULT, TextEvent(text='x'), END, encoder=encoder)
    assert names(received) == [None] * 4
    assert received[-1].data == '[DONE]'


async def test_encoder_receives_the_error_of_a_source() -> None:
    encoder = OpenaiEncoder(model='m', id='i', created=1)
    received = await frames(TextEvent(text='Hi'), error=UserError('Bad tool.'), encoder=encoder)
    assert json.loads(received[-1].data)['error']['message'] == 'Bad tool.'
