"""Events of child agents in the stream of their parent."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    AgentStreamEvent,
    CustomEvent,
    DeferredToolRequests,
    RunContext,
    Tool,
)
from pydantic_ai.messages import FunctionToolResultEvent, ModelMessage, ModelResponse, PartStartEvent, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_deep import DeepAgentDeps
from pydantic_deep.subagents import Subagent, SubagentEvent, Subagents
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


@dataclass(kw_only=True)
class Progress(CustomEvent):
    percent: int


async def report(ctx: RunContext[object]) -> str:
    await ctx.emit(Progress(percent=50))
    return str(ctx.conversation_id)


async def watched(agent: Agent[Any, Any], **options: Any) -> list[AgentStreamEvent]:
    seen: list[AgentStreamEvent] = []

    async def watch(ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        seen.extend([event async for event in events])

    await agent.run(None if options.get('conversation') else 'go', event_stream_handler=watch, **options)
    return seen


def family() -> Agent[Any, Any]:
    inner = Subagent('inner', 'x', model=ScriptedModel(call('report'), 'inner answer'), tools=[report])
    script = ScriptedModel(call('task', subagent='inner', description='x'), 'outer answer')
    outer = Subagent('outer', 'x', model=script, subagents=[inner])
    return Agent(
        ScriptedModel(call('task', subagent='outer', description='x'), 'done'), capabilities=[Subagents([outer])]
    )


async def test_events_of_children_reach_the_parents_stream_with_their_path() -> None:
    raised = [
        event for event in await watched(family(), deps=DeepAgentDeps(max_depth=2)) if isinstance(event, SubagentEvent)
    ]
    kinds = [(event.path, event.event.event_kind) for event in raised if event.event.event_kind != 'part_delta']
    assert kinds == [
        (('outer',), 'part_start'),
        (('outer',), 'part_end'),
        (('outer',), 'function_tool_call'),
        (('outer', 'inner'), 'part_start'),
        (('outer', 'inner'), 'part_end'),
        (('outer', 'inner'), 'function_tool_call'),
        (('outer', 'inner'), 'custom'),
        (('outer', 'inner'), 'function_tool_result'),
        (('outer', 'inner'), 'part_start'),
        (('outer', 'inner'), 'final_result'),
        (('outer', 'inner'), 'part_end'),
        (('outer',), 'function_tool_result'),
        (('outer',), 'part_start'),
        (('outer',), 'final_result'),
        (('outer',), 'part_end'),
    ]
    assert {event.tool_call_id for event in raised} == {'call-1'}
    assert {event.capability_id for event in raised} == {'subagents'}
    by_path = {event.path: event.conversation_id for event in raised}
    assert len(set(by_path.values())) == 2
    result_event = next(event.event for event in raised if isinstance(event.event, FunctionToolResultEvent))
    assert result_event.part.content == by_path['outer', 'inner']


async def test_events_round_trip_through_json() -> None:
    adapter: TypeAdapter[AgentStreamEvent] = TypeAdapter(AgentStreamEvent)
    seen = await watched(family(), deps=DeepAgentDeps(max_depth=2))
    assert [adapter.validate_json(adapter.dump_json(event)) for event in seen] == seen


async def test_event_can_be_constructed_directly() -> None:
    event = SubagentEvent(path=('a',), conversation_id='c', event=PartStartEvent(index=0, part=TextPart('x')))
    assert event.kind == 'subagents.event'


async def test_child_paused_in_a_stream_resumes_in_the_stream(answer: Any) -> None:
    child = Subagent(
        'worker',
        'x',
        model=ScriptedModel(call('confirm'), 'confirmed'),
        tools=[Tool(confirm, requires_approval=True)],
    )
    parent = Agent[Any, Any](
        ScriptedModel(call('task', subagent='worker', description='x'), 'done'),
        output_type=[str, DeferredToolRequests],
        capabilities=[Subagents([child])],
    )
    async with parent.run_stream_events('go', deps=DeepAgentDeps()) as events:
        [first] = [event.result async for event in events if isinstance(event, AgentRunResultEvent)]
    results = answer(first.output, {('call-1', 'call-1'): True})
    seen = await watched(parent, conversation=first.conversation, deferred_tool_results=results, deps=DeepAgentDeps())
    kinds = [event.event.event_kind for event in seen if isinstance(event, SubagentEvent)]
    assert kinds[:2] == ['function_tool_call', 'function_tool_result']
    assert 'final_result' in kinds


def confirm() -> str:
    return 'ok'


async def test_child_is_not_streamed_if_its_parent_is_not(ask: Any) -> None:
    def play(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart('answer')])

    only_whole = FunctionModel(play)  # it has no stream function
    assert (await ask(Subagent('worker', 'x', model=only_whole))).content == 'answer'
