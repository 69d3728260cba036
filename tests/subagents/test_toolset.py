"""The tool `task`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import DeepAgentDeps
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import returns, worker

pytestmark = pytest.mark.anyio

Make = Callable[..., Agent[Any, Any]]


async def test_no_subagents_add_no_tool() -> None:
    model = ScriptedModel('done')
    await Agent(model, capabilities=[Subagents(general_purpose=False)]).run('go', deps=DeepAgentDeps())
    assert (model.requests[0].instructions, model.requests[0].tool_names) == (None, [])


async def test_depth_of_0_adds_no_tool() -> None:
    model = ScriptedModel('done')
    await Agent(model, capabilities=[Subagents()]).run('go', deps=DeepAgentDeps(max_depth=0))
    [request] = model.requests
    assert (request.instructions, request.tool_names) == (None, [])


async def test_unknown_subagent_is_retried_with_a_list_of_the_others(parent: Make) -> None:
    agent = parent(call('task', subagent='wroker', description='x'), 'done', subagents=[worker()])
    result = await agent.run('go', deps=DeepAgentDeps())
    [returned] = returns(result.all_messages())
    assert returned.outcome == 'retried'
    assert returned.content == "There is no subagent 'wroker'. Subagents: general-purpose, worker."


async def test_calls_of_one_response_run_concurrently(parent: Make) -> None:
    entered = [anyio.Event(), anyio.Event()]

    async def meet(i: int) -> str:
        entered[i].set()
        with anyio.fail_after(60):
            await entered[1 - i].wait()
        return 'met'

    def play(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        if isinstance(messages[-1].parts[0], ToolReturnPart):
            return 'done'
        return call('meet', i=int(str(getattr(messages[0].parts[0], 'content', ''))))

    child = Subagent('worker', 'Works.', model=ScriptedModel(then=play), tools=[meet])
    calls = [call('task', subagent='worker', description=str(i)) for i in range(2)]
    agent = parent(calls, 'done', subagents=[child])
    result = await agent.run('go', deps=DeepAgentDeps())
    assert [part.content for part in returns(result.all_messages())] == ['done', 'done']
