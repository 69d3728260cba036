"""Responses that were cut inside a tool call end the run, and complete calls run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

from pydantic_deep.streaming import AgentStream, EndEvent, ErrorEvent, StreamEvent, stream_agent
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio


async def read(stream: AgentStream[Any]) -> list[StreamEvent]:
    async with stream:
        return [event async for event in stream]


@pytest.mark.parametrize(
    ('step', 'kind'),
    [
        (TextPart('Half of'), None),
        (TextPart(''), 'unexpected_answer'),
        (ToolCallPart('look', '{"a": ', tool_call_id='c'), 'truncated'),
        (ToolCallPart('look', '12', tool_call_id='c'), 'truncated'),
    ],
)
async def test_answer_cut_by_length_causes_no_further_request(step: Any, kind: str | None) -> None:
    """Peers: `finish_reason: length` called the model five times."""
    model = ScriptedModel(ModelResponse(parts=[step], finish_reason='length'))
    agent = Agent(model)

    @agent.tool_plain
    def look(a: int) -> str:
        return str(a)

    events = await read(stream_agent(agent, 'Go'))
    assert len(model.requests) == 1
    assert [event.kind for event in events if isinstance(event, ErrorEvent)] == ([kind] if kind else [])
    end = events[-1]
    assert isinstance(end, EndEvent)
    assert end.finish_reason == ('error' if kind else 'length')


@pytest.mark.parametrize('args', ['{"a": 1}', {'a': 1}])
async def test_complete_call_runs_with_any_finish_reason(args: Any) -> None:
    response = ModelResponse(parts=[ToolCallPart('look', args, tool_call_id='c')], finish_reason='length')
    agent = Agent(ScriptedModel(response, 'Done'))

    @agent.tool_plain
    def look(a: int) -> str:
        return str(a)

    stream = stream_agent(agent, 'Go')
    await read(stream)
    assert stream.content == 'Done'
