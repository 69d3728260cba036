"""Events of message parts: files, todos, approvals, thoughts and answers."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
)
from pydantic_ai.messages import ModelResponse, ThinkingPart, ThinkingPartDelta, ToolCallPart, ToolReturnPart

from pydantic_deep.streaming import (
    ApprovalRequiredEvent,
    EndEvent,
    FileEvent,
    RunEvents,
    StreamEvent,
    ThinkingEvent,
    TodosEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
    stream_events,
)
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.todos import Todo
from tests.streaming.runs.conftest import only, result_of, told_by, translate

pytestmark = pytest.mark.anyio


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
