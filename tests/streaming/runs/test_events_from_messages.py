"""Events of a run, projected from its messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai import Agent, AgentRunResult, BinaryImage, DeferredToolRequests, ToolReturn
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from pydantic_deep import create_deep_agent
from pydantic_deep.approvals import Approve, answer_approvals
from pydantic_deep.store import open_store
from pydantic_deep.streaming import (
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    FileEvent,
    RunEvents,
    StartEvent,
    StatusEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    TodosEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
    project_messages,
    stream_agent,
)
from pydantic_deep.testing import ScriptedModel, Step, call, deps_for_test
from pydantic_deep.versions import AgentVersion, TurnStream, VersionedAgent


class Verdict(BaseModel):
    """A structured answer."""

    good: bool


steps = st.lists(
    st.one_of(
        st.just('Some words'),
        st.just(ThinkingPart('Hm, well')),
        st.just(call('ls')),
        st.just(call('write_file', path='a.md', content='x')),
        st.just(call('edit_file', path='a.md', old_string='x', new_string='y')),
        st.just(call('write_todos', todos=[{'content': 'Look', 'status': 'pending'}])),
        st.just(call('no_such_tool', x=1)),
        st.just(ToolCallPart('ls', '{"path": ', tool_call_id='')),
    ),
    min_size=1,
    max_size=4,
).filter(lambda parts: any(isinstance(part, ToolCallPart) for part in parts))


def coalesced(events: Sequence[StreamEvent]) -> list[StreamEvent]:
    """Merge text deltas and remove live-only events and those of subagents."""
    joined: list[StreamEvent] = []
    for event in events:
        before = joined[-1] if joined else None
        match event:
            case ToolCallDeltaEvent() | StartEvent() | StatusEvent():
                continue
            case TextEvent(text=text) if isinstance(before, TextEvent):
                joined[-1] = replace(before, text=before.text + text)
            case ThinkingEvent() if isinstance(before, ThinkingEvent) and before.signature is None:
                joined[-1] = replace(before, text=before.text + event.text, signature=event.signature)
            case ToolCallEvent():
                joined.append(replace(event, sub_agent_thread_id=None))
            case _ if getattr(event, 'path', None) and not isinstance(event, FileEvent):
                continue
            case _:
                joined.append(event)
    return _in_order(joined)


def _in_order(events: list[StreamEvent]) -> list[StreamEvent]:
    """Sort the results of a step by their calls, because live results arrive in order of completion."""
    ordered: list[StreamEvent] = []
    for is_result, group in groupby(events, lambda event: isinstance(event, (ToolResultEvent, TodosEvent, FileEvent))):
        if not is_result:
            ordered += group
            continue
        told_by_id: dict[str, list[StreamEvent]] = {}
        id = ''
        for event in group:
            id = event.id if isinstance(event, ToolResultEvent) else id
            told_by_id.setdefault(id, []).append(event)
        ordered += [event for id in sorted(told_by_id) for event in told_by_id[id]]
    return ordered


async def live_and_projected(*script: Step) -> tuple[list[StreamEvent], list[StreamEvent]]:
    agent = create_deep_agent(ScriptedModel(*script))
    async with stream_agent(agent, 'Go', deps=deps_for_test()) as stream:
        live = [event async for event in stream]
    result = stream.result
    return live, project_messages(stored(result), status='complete', output=result.output)


def stored(result: AgentRunResult[Any]) -> list[ModelMessage]:
    """Return the messages of a run as loaded from a store."""
    return ModelMessagesTypeAdapter.validate_json(result.new_messages_json())


@pytest.mark.slow
@settings(max_examples=40)
@given(script=st.lists(steps, max_size=4))
def test_projected_events_equal_the_live_events(script: list[Any]) -> None:
    """A client that connects later receives the same events."""
    live, projected = anyio.run(lambda: live_and_projected(*script, 'The answer'))
    assert coalesced(live) == coalesced(projected)


def test_usage_of_subagents_is_projected_from_their_results() -> None:
    script = (call('task', subagent='general-purpose', description='Look'), call('ls'), 'Nothing', 'Done')
    live, projected = anyio.run(lambda: live_and_projected(*script))

    def last_usage(events: list[StreamEvent]) -> StreamEvent:
        return [event for event in events if isinstance(event, UsageEvent)][-1]

    assert last_usage(projected) == last_usage(live)
    assert last_usage(projected) == UsageEvent(input_tokens=400, output_tokens=40, requests=4, tool_calls=2)


def test_delegation_is_projected_with_its_thread() -> None:
    """002-08: the call has the link to the subagent's thread."""
    script = (call('task', subagent='general-purpose', description='Look'), 'Nothing', 'Done')
    _, projected = anyio.run(lambda: live_and_projected(*script))
    [task] = [event for event in projected if isinstance(event, ToolCallEvent)]
    [result] = [event for event in projected if isinstance(event, ToolResultEvent)]
    assert task.intent == 'Look'
    assert task.sub_agent_thread_id == result.sub_agent_thread_id
    assert task.sub_agent_thread_id


def test_structured_answer_is_projected_like_the_live_one() -> None:
    async def both() -> tuple[list[StreamEvent], list[StreamEvent]]:
        agent = Agent(ScriptedModel(['So:', call('final_result', good=True)]), output_type=Verdict)
        async with stream_agent(agent, 'Go') as stream:
            live = [event async for event in stream]
        return live, project_messages(stored(stream.result), status='complete', output=stream.result.output)

    live, projected = anyio.run(both)
    assert coalesced(live) == coalesced(projected)
    assert live[-1] == EndEvent(
        status='complete', output='{"good":true}', usage=UsageEvent(input_tokens=100, output_tokens=10, requests=1)
    )


@pytest.mark.anyio
async def test_stored_turns_are_projected_like_the_live_ones() -> None:
    """The second turn of a conversation is suspended and resumed. Usage counts from the start of each run."""
    model = ScriptedModel('Hi', [call('ls'), call('write_file', path='/a', content='x')], 'Written')
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(model, interrupt_on={'write_file': True}), store)
        root = await (await agent.create()).advance('Hello')
        waiting = await _check(root, root.advance_stream('Write it'))
        await _check(waiting, waiting.resume_stream({'call-2': Approve()}))


async def _check(base: AgentVersion[Any, Any], stream: TurnStream[Any, Any]) -> AgentVersion[Any, Any]:
    """Run a turn, compare its events with its projection, and return its version."""
    translator = RunEvents(usage=lambda: stream.usage, usage_before=base.usage)
    async with stream:
        live = [emitted async for event in stream.events() for emitted in translator.translate(event)]
    after = stream.version
    projected = project_messages(
        await after.messages(),
        since=base.message_count,
        status='complete' if after.state == 'complete' else 'awaiting_approval',
        output=after.deferred_tool_requests or after.output,
        version_id=after.id,
    )
    assert coalesced(projected) == coalesced([*live, *translator.end(version_id=after.id)])
    assert [event.requests for event in live if isinstance(event, UsageEvent)] == [1]
    return after


@pytest.mark.anyio
async def test_projection_starts_with_answered_calls() -> None:
    script = (call('write_file', path='/a', content='x'), 'Written')
    agent = create_deep_agent(ScriptedModel(*script), interrupt_on={'write_file': True})
    deps = deps_for_test()
    first = await agent.run('Go', deps=deps)
    assert isinstance(first.output, DeferredToolRequests)
    history = first.all_messages()
    answers = answer_approvals(first.output, {'call-1': Approve()})
    async with stream_agent(agent, deps=deps, message_history=history, deferred_tool_results=answers) as stream:
        live = [event async for event in stream]
    result = stream.result
    projected = project_messages(result.all_messages(), since=len(history), status='complete', output=result.output)
    assert coalesced(projected) == coalesced(live)
    assert [event.type for event in projected] == [
        'start', 'tool_call', 'tool_result', 'file', 'text', 'usage', 'end',
    ]  # fmt: skip


def test_projection_ends_with_pending_calls() -> None:
    requests = DeferredToolRequests(approvals=[ToolCallPart('pay', {'amount': 1}, tool_call_id='c')])
    messages: list[ModelMessage] = [ModelResponse(parts=[ToolCallPart('pay', {'amount': 1}, tool_call_id='c')])]
    emitted = project_messages(messages, status='awaiting_approval', output=requests, version_id='v')
    assert isinstance(emitted[-2], ApprovalRequiredEvent)
    assert emitted[-1] == EndEvent(
        finish_reason='tool_call', status='awaiting_approval', version_id='v', usage=UsageEvent(requests=1)
    )


def test_unfinished_run_is_projected_without_an_end() -> None:
    start = StartEvent(id='r')
    assert project_messages([ModelResponse(parts=[TextPart('Hm')])], start=start) == [
        start,
        TextEvent(text='Hm'),
        UsageEvent(requests=1),
    ]


def test_failed_run_is_projected_with_its_error() -> None:
    error = ErrorEvent(kind='run_failed', message='No.')
    assert project_messages([], status='failed', error=error) == [
        StartEvent(),
        error,
        EndEvent(finish_reason='error', status='failed', usage=UsageEvent()),
    ]


def test_interrupted_run_is_projected_with_an_error_end() -> None:
    emitted = project_messages([ModelResponse(parts=[TextPart('Hm')], finish_reason='stop')], status='interrupted')
    assert emitted[-1] == EndEvent(finish_reason='error', status='interrupted', usage=UsageEvent(requests=1))


def test_native_calls_are_projected_and_media_and_empty_parts_omitted() -> None:
    response = ModelResponse(
        parts=[
            NativeToolCallPart('web_search', {'q': 'x'}, tool_call_id='n'),
            NativeToolReturnPart('web_search', 'found', tool_call_id='n'),
            FilePart(BinaryImage(b'x', media_type='image/png')),
            TextPart(''),
        ],
        usage=RequestUsage(input_tokens=5, cache_read_tokens=3, cache_write_tokens=1, output_tokens=2),
    )
    assert project_messages([response])[1:] == [
        ToolCallEvent(id='n', name='web_search', args='{"q":"x"}'),
        ToolResultEvent(id='n', name='web_search', outcome='success', content='found'),
        UsageEvent(input_tokens=5, cache_read_tokens=3, cache_write_tokens=1, output_tokens=2, requests=1),
    ]


def test_result_without_its_call_is_projected() -> None:
    result = ToolReturnPart('write_file', 'ok', tool_call_id='c')
    assert project_messages([ModelRequest(parts=[UserPromptPart('x'), result])])[1:] == [
        ToolResultEvent(id='c', name='write_file', outcome='success', content='ok')
    ]


@pytest.mark.parametrize(
    ('history', 'since'),
    [
        ([ModelRequest(parts=[UserPromptPart('x')])], 1),
        ([ModelRequest(parts=[UserPromptPart('x')]), ModelRequest(parts=[UserPromptPart('y')])], 1),
        ([ModelResponse(parts=[TextPart('x')]), ModelResponse(parts=[TextPart('y')])], 1),
    ],
)
def test_calls_are_projected_as_answered_only_if_they_were_pending(history: list[ModelMessage], since: int) -> None:
    emitted = project_messages(history, since=since)
    assert [event for event in emitted if isinstance(event, ToolCallEvent)] == []


@pytest.mark.parametrize('usage', [None, 'much', {'input_tokens': 'many'}])
@pytest.mark.anyio
async def test_invalid_usage_metadata_are_ignored(usage: object) -> None:
    agent = Agent(ScriptedModel(call('task'), 'Done'))

    @agent.tool_plain
    def task() -> ToolReturn[str]:
        return ToolReturn('x', metadata={'sub_agent_thread_id': 't', 'usage': usage})

    result = await agent.run('Go')
    usages = [event for event in project_messages(result.all_messages()) if isinstance(event, UsageEvent)]
    assert usages[-1] == UsageEvent(input_tokens=200, output_tokens=20, requests=2, tool_calls=1)
