"""A run as canonical events: 004-12, 004-20 and 004-22 in one union."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    AgentRunResult,
    AgentRunResultEvent,
    AgentStreamEvent,
    BinaryImage,
    CapabilityEvent,
    DeferredToolRequests,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    RunCancelled,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.messages import (
    FilePart,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
)
from pydantic_ai.usage import RunUsage

from pydantic_deep import create_deep_agent
from pydantic_deep.budgets import BudgetUnknownEvent, BudgetWarningEvent, LastAnswerEvent
from pydantic_deep.retries import ModelRetriedEvent
from pydantic_deep.streaming import (
    ApprovalRequiredEvent,
    BudgetEvent,
    EndEvent,
    ErrorEvent,
    FileEvent,
    RetriedEvent,
    RunEvents,
    StartEvent,
    StatusEvent,
    StreamEvent,
    SummarizedEvent,
    TextEvent,
    ThinkingEvent,
    TodosEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
    stream_events,
)
from pydantic_deep.subagents import SubagentEvent
from pydantic_deep.summarization import HistorySummarizedEvent
from pydantic_deep.testing import ScriptedModel, Step, call, deps_for_test
from pydantic_deep.todos import Todo

KindT = TypeVar('KindT')

pytestmark = pytest.mark.anyio


async def told_by(*steps: Step, **options: Any) -> list[StreamEvent]:
    """Return the events of a deep agent with this script."""
    agent = create_deep_agent(ScriptedModel(*steps), **options)
    async with agent.run_stream_events('Go', deps=deps_for_test()) as run:
        is_begun = False

        async def events() -> AsyncGenerator[AgentStreamEvent | AgentRunResultEvent[Any]]:
            nonlocal is_begun
            async for event in run:
                is_begun = True
                yield event

        translator = RunEvents(usage=lambda: run.usage if is_begun else None)
        return [event async for event in stream_events(events(), translator)]


def only(kind: type[KindT], events: Sequence[object]) -> list[KindT]:
    return [event for event in events if isinstance(event, kind)]


def translate(*events: AgentStreamEvent | AgentRunResultEvent[Any]) -> list[StreamEvent]:
    translator = RunEvents()
    return [emitted for event in events for emitted in translator.translate(event)]


def result_of(output: object, *parts: Any, finish_reason: Any = None) -> AgentRunResultEvent[Any]:
    """Return the last event of a run with this output, after one response."""
    return AgentRunResultEvent(_result(output, ModelResponse(parts=list(parts), finish_reason=finish_reason)))


def _result(output: object, response: ModelResponse) -> AgentRunResult[Any]:
    class Result(AgentRunResult[Any]):
        @property
        def response(self) -> ModelResponse:
            return response

    return Result(output)


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


async def test_empty_deltas_are_not_emitted() -> None:
    assert translate(PartStartEvent(index=0, part=TextPart('')), PartDeltaEvent(index=0, delta=TextPartDelta(''))) == []


async def test_call_is_emitted_in_deltas_then_whole_then_with_its_result() -> None:
    events = await told_by(call('write_todos', todos=[{'content': 'Look', 'status': 'pending'}]), 'Done')
    args = '{"todos":[{"content":"Look","status":"pending"}]}'
    pieces = only(ToolCallDeltaEvent, events)
    assert (pieces[0].id, pieces[0].name, ''.join(piece.args for piece in pieces)) == ('call-1', 'write_todos', args)
    assert only(ToolCallEvent, events) == [ToolCallEvent(id='call-1', name='write_todos', args=args, index=0)]
    assert only(ToolResultEvent, events) == [
        ToolResultEvent(id='call-1', name='write_todos', outcome='success', content='1 todo, 0 completed')
    ]


async def test_todos_are_emitted_after_they_were_written() -> None:
    events = await told_by(call('write_todos', todos=[{'content': 'Look', 'status': 'pending'}]), 'Done')
    assert only(TodosEvent, events) == [TodosEvent(todos=[Todo(content='Look', status='pending')])]


async def test_file_event_is_emitted_only_for_a_successful_write() -> None:
    events = await told_by(
        [
            call('write_file', path='notes.md', content='x'),
            call('edit_file', path='/none.md', old_string='a', new_string='b'),
        ],
        'Done',
    )
    assert only(FileEvent, events) == [FileEvent(path='/notes.md', change='created', added_lines=1, removed_lines=0)]
    assert [event.outcome for event in only(ToolResultEvent, events)] == ['success', 'retried']


def settled(name: str, args: dict[str, Any], **options: Any) -> list[StreamEvent]:
    """Return the further events after the result of a successful call."""
    translator = RunEvents(**options)
    translator.translate(FunctionToolCallEvent(ToolCallPart(name, args, tool_call_id='c')))
    return translator.translate(FunctionToolResultEvent(ToolReturnPart(name, 'ok', tool_call_id='c')))[1:]


async def test_relative_path_is_resolved_against_the_working_directory() -> None:
    assert settled('edit_file', {'path': 'a/b.py'}, working_dir='/repo') == [
        FileEvent(path='/repo/a/b.py', change='changed')
    ]


@pytest.mark.parametrize(
    ('name', 'args'),
    [('write_file', {'path': 'C:\\a'}), ('write_file', {'path': 1}), ('write_todos', {'todos': 'x'}), ('ls', {})],
)
async def test_unrelated_tools_with_known_names_emit_no_extra_events(name: str, args: dict[str, Any]) -> None:
    assert settled(name, args) == []


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


async def test_approval_is_emitted_with_its_preview_and_ends_the_run() -> None:
    """C24: approvals always visible, stream ends."""
    events = await told_by(call('write_file', path='/a.txt', content='x'), interrupt_on={'write_file': True})
    [required] = only(ApprovalRequiredEvent, events)
    [approval] = required.approvals
    assert (approval.id, approval.tool, approval.args) == ('call-1', 'write_file', {'path': '/a.txt', 'content': 'x'})
    preview = approval.view.preview
    assert preview is not None
    assert str(preview.diff).endswith('+x\n\\ No newline at end of file')
    assert approval.decisions == ['approve', 'edit', 'deny', 'respond']
    assert events[-1] == EndEvent(
        finish_reason='tool_call',
        status='awaiting_approval',
        usage=UsageEvent(input_tokens=100, output_tokens=10, requests=1),
    )


async def test_approval_in_a_subagent_is_emitted_with_its_path() -> None:
    events = await told_by(
        call('task', subagent='general-purpose', description='Write'),
        call('write_file', path='/a.txt', content='x'),
        interrupt_on={'write_file': True},
    )
    [approval] = only(ApprovalRequiredEvent, events)[0].approvals
    assert (approval.id, approval.path) == ('call-1/call-2', ['general-purpose'])
    assert 'call-1/call-2' in [event.id for event in only(ToolCallEvent, events)]


async def test_approval_without_a_preview_is_emitted_without_one() -> None:
    requests = DeferredToolRequests(approvals=[ToolCallPart('pay', {'amount': 1}, tool_call_id='c')])
    [event] = translate(result_of(requests))
    assert isinstance(event, ApprovalRequiredEvent)
    assert event.approvals[0].view.preview is None


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


async def test_intent_that_is_not_text_is_omitted() -> None:
    [emitted] = translate(FunctionToolCallEvent(ToolCallPart('task', {'description': 1}, tool_call_id='c')))
    assert isinstance(emitted, ToolCallEvent)
    assert emitted.intent is None


@pytest.mark.parametrize('metadata', [None, {'sub_agent_thread_id': 1}])
async def test_result_without_a_thread_id_has_none(metadata: object) -> None:
    part = ToolReturnPart('task', 'ok', tool_call_id='c', metadata=metadata)
    [emitted] = translate(FunctionToolResultEvent(part))
    assert isinstance(emitted, ToolResultEvent)
    assert emitted.sub_agent_thread_id is None


async def test_repeated_call_event_is_emitted_once() -> None:
    event = FunctionToolCallEvent(ToolCallPart('ls', {}, tool_call_id='c'))
    assert len(translate(event, event)) == 1


async def test_thinking_is_emitted_with_its_signature() -> None:
    assert translate(
        PartStartEvent(index=0, part=ThinkingPart('Hm')),
        PartDeltaEvent(index=0, delta=ThinkingPartDelta(content_delta='m')),
        PartDeltaEvent(index=0, delta=ThinkingPartDelta(signature_delta='sig')),
        PartDeltaEvent(index=0, delta=ThinkingPartDelta(content_delta='')),
        PartStartEvent(index=1, part=ThinkingPart('')),
        PartStartEvent(index=2, part=ThinkingPart('', signature='only')),
    ) == [
        ThinkingEvent(text='Hm'),
        ThinkingEvent(text='m'),
        ThinkingEvent(text='', signature='sig'),
        ThinkingEvent(text='', signature='only'),
    ]


async def test_deltas_of_interleaved_calls_have_their_own_index() -> None:
    """004-31: interleaved calls retain their index, regardless of parts between them."""
    emitted = translate(
        PartStartEvent(index=0, part=TextPart('x')),
        PartStartEvent(index=1, part=ToolCallPart('a', tool_call_id='1')),
        PartStartEvent(index=2, part=ToolCallPart('b', {'x': 1}, tool_call_id='2')),
        PartDeltaEvent(index=1, delta=ToolCallPartDelta(args_delta='{"y"')),
        PartDeltaEvent(index=2, delta=ToolCallPartDelta(args_delta={'z': 2})),
        PartDeltaEvent(index=1, delta=ToolCallPartDelta(args_delta=':1}')),
        PartDeltaEvent(index=1, delta=ToolCallPartDelta(tool_name_delta='a')),
        FunctionToolCallEvent(ToolCallPart('b', {'x': 1}, tool_call_id='2')),
    )
    assert emitted[1:] == [
        ToolCallDeltaEvent(index=0, id='1', name='a'),
        ToolCallDeltaEvent(index=1, id='2', name='b', args='{"x":1}'),
        ToolCallDeltaEvent(index=0, args='{"y"'),
        ToolCallDeltaEvent(index=1, args='{"z":2}'),
        ToolCallDeltaEvent(index=0, args=':1}'),
        ToolCallEvent(id='2', name='b', args='{"x":1}', index=1),
    ]


async def test_native_calls_are_emitted_when_they_are_complete() -> None:
    native = NativeToolCallPart('web_search', {'q': 'x'}, tool_call_id='n')
    assert translate(
        PartStartEvent(index=0, part=native),
        PartDeltaEvent(index=0, delta=ToolCallPartDelta(args_delta='{}')),
        PartEndEvent(index=0, part=native),
        PartEndEvent(index=1, part=NativeToolReturnPart('web_search', 'found', tool_call_id='n')),
    ) == [
        ToolCallEvent(id='n', name='web_search', args='{"q":"x"}'),
        ToolResultEvent(id='n', name='web_search', outcome='success', content='found'),
    ]


async def test_irrelevant_parts_emit_no_events() -> None:
    picture = FilePart(BinaryImage(b'x', media_type='image/png'))
    assert (
        translate(
            FinalResultEvent(tool_name=None, tool_call_id=None),
            PartStartEvent(index=0, part=picture),
            PartEndEvent(index=0, part=TextPart('x')),
        )
        == []
    )


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


@dataclass(kw_only=True)
class TideEvent(CapabilityEvent, namespace='streaming_tests', name='tide'):
    """A third-party capability event."""


@pytest.mark.parametrize(
    ('event', 'expected'),
    [
        (
            HistorySummarizedEvent(
                reason='tokens', replaced_messages=8, tokens_before=1200, tokens_after=300, is_plain=True, error='No.'
            ),
            SummarizedEvent(
                reason='tokens', replaced_messages=8, tokens_before=1200, tokens_after=300, is_plain=True, error='No.'
            ),
        ),
        (
            BudgetWarningEvent(scope='run', measure='tokens', limit=Decimal(1000), used=Decimal(800)),
            BudgetEvent(kind='warning', scope='run', measure='tokens', limit=1000, used=800),
        ),
        (
            LastAnswerEvent(scope='conversation', measure='cost', limit=Decimal(1), used=Decimal('0.95')),
            BudgetEvent(kind='last_answer', scope='conversation', measure='cost', limit=1.0, used=0.95),
        ),
        (
            BudgetUnknownEvent(measure='cost', model_name='m'),
            BudgetEvent(kind='unknown', measure='cost', model='m'),
        ),
        (BudgetUnknownEvent(measure='tokens', model_name=''), BudgetEvent(kind='unknown', measure='tokens')),
        (TideEvent(), StatusEvent(kind='streaming_tests.tide', text='streaming_tests.tide happened.')),
    ],
)
async def test_known_capability_events_are_typed_and_others_have_a_status(
    event: CapabilityEvent, expected: SummarizedEvent | BudgetEvent | StatusEvent
) -> None:
    nested = SubagentEvent(path=('x',), conversation_id='k', event=event)
    assert translate(event, nested) == [expected, replace(expected, path=['x'])]


@pytest.mark.parametrize(('shows_errors', 'expected'), [(False, 'AuthError'), (True, 'AuthError: key sk-1')])
async def test_exception_messages_are_emitted_only_on_request(shows_errors: bool, expected: str) -> None:
    """Exceptions of a summarizer come from application code, and may contain private data."""
    summarized = HistorySummarizedEvent(
        reason='tokens',
        replaced_messages=8,
        tokens_before=9,
        tokens_after=3,
        is_plain=True,
        error='AuthError: key sk-1',
    )
    (event,) = RunEvents(shows_errors=shows_errors).translate(summarized)
    assert isinstance(event, SummarizedEvent)
    assert event.error == expected


class Verdict(BaseModel):
    """A structured answer."""

    good: bool


async def test_structured_answer_is_emitted_as_json_at_the_end() -> None:
    """004-23: the answer is parsed and emitted."""
    agent = Agent(ScriptedModel(call('final_result', good=True)), output_type=Verdict)
    async with agent.run_stream_events('Go') as run:
        events = [event async for event in stream_events(run)]
    assert events[-1] == EndEvent(
        finish_reason='stop',
        status='complete',
        output='{"good":true}',
        usage=UsageEvent(input_tokens=100, output_tokens=10, requests=1),
    )


@pytest.mark.parametrize(('output', 'text'), [(None, None), (object, '"<class \'object\'>"'), (['a', 1], '["a",1]')])
async def test_output_of_any_type_is_emitted_as_text(output: object, text: str | None) -> None:
    translator = RunEvents()
    translator.translate(result_of(output))
    [end] = translator.end()
    assert isinstance(end, EndEvent)
    assert end.output == text


async def test_answer_cut_by_length_ends_with_that_reason() -> None:
    """004-19: `length` ends the run without another request."""
    model = ScriptedModel(ModelResponse(parts=[TextPart('Half of')], finish_reason='length'))
    async with Agent(model).run_stream_events('Go') as run:
        events = [event async for event in stream_events(run)]
    assert events[-1] == EndEvent(
        finish_reason='length',
        status='complete',
        output='Half of',
        usage=UsageEvent(input_tokens=100, output_tokens=10, requests=1),
    )
    assert len(model.requests) == 1


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
        ErrorEvent(kind='cancelled', message='Stopped.'),
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


async def test_arguments_with_a_lone_surrogate_are_emitted() -> None:
    [emitted] = translate(FunctionToolCallEvent(ToolCallPart('ls', {'path': '\ud83d'}, tool_call_id='c')))
    assert isinstance(emitted, ToolCallEvent)
    assert emitted.args == '{"path":"\\ud83d"}'
    assert replace(emitted, args='').id == 'c'
