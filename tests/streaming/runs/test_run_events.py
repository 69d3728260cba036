"""A run as canonical events: 004-12, 004-20 and 004-22 in one union."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from pydantic_ai import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    PartDeltaEvent,
    PartStartEvent,
    RunCancelled,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.usage import RunUsage

from pydantic_deep.retries import ModelRetriedEvent
from pydantic_deep.streaming import (
    EndEvent,
    ErrorEvent,
    FileEvent,
    RetriedEvent,
    RunEvents,
    StartEvent,
    TextEvent,
    TodosEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
    stream_events,
)
from pydantic_deep.subagents import SubagentEvent
from pydantic_deep.testing import call
from tests.streaming.runs.conftest import only, result_of, told_by, translate

pytestmark = pytest.mark.anyio


async def test_text_is_emitted_in_deltas() -> None:
    """004-20: text reaches the user as it arrives."""
    events = await told_by('Hello there')
    assert [event.text for event in only(TextEvent, events)] == ['Hello ', 'there']


async def test_run_has_start_and_end_events() -> None:
    translator = RunEvents(run_id='r', agent_name='a', conversation_id='c', session_id='s')
    assert translator.start() == [StartEvent(id='r', model='a', conversation_id='c', session_id='s')]
    translator.translate(result_of('Done', finish_reason='stop'))
    assert translator.end(version_id='v') == [
        EndEvent(finish_reason='stop', status='complete', version_id='v', output='Done', usage=UsageEvent())
    ]


async def test_usage_is_emitted_after_each_response_before_its_calls() -> None:
    events = await told_by(call('ls'), 'Done')
    shown = [event.type for event in events if event.type in ('usage', 'tool_call', 'text', 'end')]
    assert shown == ['usage', 'tool_call', 'text', 'usage', 'end']
    assert only(UsageEvent, events) == [
        UsageEvent(input_tokens=100, output_tokens=10, requests=1),
        UsageEvent(input_tokens=200, output_tokens=20, requests=2, tool_calls=1),
    ]


async def test_usage_counts_from_the_start_of_the_run() -> None:
    before = RunUsage(requests=3, input_tokens=30, output_tokens=6, cache_read_tokens=12, cache_write_tokens=9)
    usage = replace(before)
    translator = RunEvents(usage=lambda: usage, usage_before=before)
    event = PartStartEvent(index=0, part=TextPart('x'))
    assert translator.translate(event) == [TextEvent(text='x')]
    usage.incr(RunUsage(requests=1, input_tokens=5, output_tokens=4, cache_read_tokens=3, cache_write_tokens=2))
    assert translator.translate(event)[0] == UsageEvent(
        requests=1, input_tokens=5, output_tokens=4, cache_read_tokens=3, cache_write_tokens=2
    )


async def test_events_of_a_subagent_are_emitted_with_their_path() -> None:
    """004-33, 002-08: events of nested runs have a path, and a delegation its intent and thread."""
    events = await told_by(
        call('task', subagent='general-purpose', description='Look around'),
        call('ls'),
        'Nothing here',
        'Done',
    )
    task, nested = only(ToolCallEvent, events)
    assert (task.id, task.intent, task.path) == ('call-1', 'Look around', [])
    assert (nested.id, nested.name, nested.path) == ('call-1/call-2', 'ls', ['general-purpose'])
    assert ''.join(event.text for event in only(TextEvent, events) if event.path) == 'Nothing here'
    inner, outer = only(ToolResultEvent, events)
    assert (inner.id, inner.sub_agent_thread_id) == ('call-1/call-2', None)
    assert outer.sub_agent_thread_id


async def test_todos_of_a_subagent_are_not_emitted() -> None:
    events = await told_by(
        call('task', subagent='general-purpose', description='Plan'),
        [
            call('write_todos', todos=[{'content': 'Mine', 'status': 'pending'}]),
            call('write_file', path='/a', content='x'),
        ],
        'Planned',
        'Done',
    )
    assert only(TodosEvent, events) == []
    assert only(FileEvent, events) == [FileEvent(path='/a', change='created', added_lines=1, removed_lines=0)]


async def test_call_ids_containing_a_slash_are_escaped() -> None:
    nested = FunctionToolCallEvent(ToolCallPart('ls', {}, tool_call_id='b/c'))
    event = SubagentEvent(path=('x',), conversation_id='k', event=nested, tool_call_id='a%')
    assert [emitted.id for emitted in only(ToolCallEvent, translate(event))] == ['a%25/b%2Fc']


async def test_repeated_call_event_is_emitted_once() -> None:
    event = FunctionToolCallEvent(ToolCallPart('ls', {}, tool_call_id='c'))
    assert len(translate(event, event)) == 1


async def test_retried_event_includes_the_void_text() -> None:
    retried = ModelRetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=1.5, is_void=True)
    emitted = translate(
        PartStartEvent(index=0, part=TextPart('Before')),
        PartStartEvent(index=0, part=TextPart('Hel')),
        PartDeltaEvent(index=0, delta=TextPartDelta('lo')),
        retried,
        retried,
    )
    assert emitted[3:] == [
        RetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=1.5, void_text='Hello'),
        RetriedEvent(attempt=2, attempts=3, reason='cut', delay_seconds=1.5),
    ]


async def test_retry_before_any_text_voids_nothing() -> None:
    retried = ModelRetriedEvent(attempt=2, attempts=3, reason='busy', delay_seconds=0, is_void=False)
    emitted = translate(PartStartEvent(index=0, part=TextPart('Hel')), retried)
    assert emitted[1] == RetriedEvent(attempt=2, attempts=3, reason='busy', delay_seconds=0)


async def test_run_without_a_result_is_interrupted() -> None:
    assert RunEvents().end() == [EndEvent(finish_reason='error', status='interrupted', usage=UsageEvent())]


async def test_status_of_the_end_event_can_be_overridden() -> None:
    translator = RunEvents()
    translator.translate(result_of('x'))
    assert translator.end(status='failed') == [
        EndEvent(finish_reason='stop', status='failed', output='x', usage=UsageEvent())
    ]


async def _raising(error: BaseException) -> AsyncGenerator[AgentStreamEvent]:
    yield PartStartEvent(index=0, part=TextPart('Hel'))
    raise error


async def test_failing_run_emits_an_error_and_does_not_raise() -> None:
    events = [event async for event in stream_events(_raising(RunCancelled('Stopped.')))]
    assert events == [
        StartEvent(),
        TextEvent(text='Hel'),
        ErrorEvent(kind='cancelled', message='The run was cancelled. Completed work is preserved.'),
        EndEvent(finish_reason='error', status='interrupted', usage=UsageEvent()),
    ]


async def test_unexpected_exception_is_logged_and_its_message_is_hidden(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger='pydantic_deep'):
        events = [event async for event in stream_events(_raising(KeyError('password=hunter2')))]
    assert events[2] == ErrorEvent(
        kind='run_failed',
        message='The run failed with KeyError. The log of the application has the details.',
        status=500,
    )
    assert 'hunter2' in caplog.text


async def test_failure_event_names_the_version_with_the_completed_work() -> None:
    assert RunEvents().fail(ValueError('x'), version_id='v')[-1] == EndEvent(
        finish_reason='error', status='failed', version_id='v', usage=UsageEvent()
    )


async def test_continued_run_repeats_no_event_that_it_had_before() -> None:
    """The calls of its last step have events; only their results are new. Usage counts on."""
    earlier = [
        StartEvent(id='r'),
        ToolCallEvent(id='done', name='ls', args='{}', index=0),
        ToolResultEvent(id='done', name='ls', outcome='success', content=''),
        ToolCallEvent(id='open', name='ls', args='{}', index=1),
        UsageEvent(requests=1, tool_calls=1),
    ]
    translator = RunEvents(run_id='r', agent_name='a')
    assert translator.continue_after(earlier) == earlier
    assert translator.usage == UsageEvent(requests=1, tool_calls=1)
    assert translator.translate(FunctionToolCallEvent(ToolCallPart('ls', {}, tool_call_id='open'))) == []
    called = translator.translate(FunctionToolCallEvent(ToolCallPart('ls', {}, tool_call_id='new')))
    assert [event.type for event in called] == ['tool_call']
