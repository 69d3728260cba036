"""The task and the answer of a child, and the subagents of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import hand_on, nested, worker

pytestmark = pytest.mark.anyio

Make = Callable[..., Agent[Any, Any]]


async def test_child_receives_only_its_task_and_returns_only_its_answer(ask: Any) -> None:
    model = ScriptedModel('answer')
    returned = await ask(Subagent('worker', 'Works.', model=model, instructions='Be good.'))
    [request] = model.requests
    assert request.instructions == 'Be good.'
    [message] = request.messages
    assert [part.content for part in message.parts if isinstance(part, UserPromptPart)] == ['work']
    assert returned.content == 'answer'


async def test_result_metadata_contains_the_thread_and_usage_of_the_child(ask: Any) -> None:
    seen: list[str | None] = []

    def look(ctx: RunContext[object]) -> str:
        seen.append(ctx.conversation_id)
        return 'ok'

    returned = await ask(worker(call('look'), 'answer', tools=[look]))
    metadata = returned.metadata
    assert (metadata['sub_agent_thread_id'], metadata['subagent'], metadata['path']) == (seen[0], 'worker', ['worker'])
    usage = metadata['usage']
    assert (usage['requests'], usage['input_tokens'], usage['tool_calls']) == (2, 200, 1)


async def test_general_purpose_is_the_agent_with_a_fresh_history() -> None:
    class Report(BaseModel):
        text: str

    model = ScriptedModel(
        call('task', subagent='general-purpose', description='look'),
        call('look'),
        'the answer',
        call('final_result', text='done'),
    )
    parent = Agent(
        model, output_type=Report, instructions='You are one.', deps_type=DeepAgentDeps, capabilities=[Subagents()]
    )

    @parent.tool
    def look(ctx: RunContext[DeepAgentDeps]) -> str:
        return f'{ctx.agent is parent} {ctx.deps.max_depth}'

    result = await parent.run('go', deps=DeepAgentDeps())
    assert result.output == Report(text='done')
    _, asked, after, last = model.requests
    assert (asked.instructions, asked.tool_names) == ('You are one.', ['look'])
    assert [part.content for part in after.tool_returns] == ['True 0']
    assert [part.content for part in last.tool_returns] == ['the answer']


async def test_declared_subagent_replaces_general_purpose() -> None:
    model = ScriptedModel('mine')
    parent_model = ScriptedModel(call('task', subagent='general-purpose', description='x'), 'done')
    capability = Subagents([Subagent('general-purpose', 'Mine.', model=model)])
    await Agent(parent_model, capabilities=[capability]).run('go', deps=DeepAgentDeps())
    assert parent_model.requests[0].instructions == 'Subagents for `task`:\n- general-purpose: Mine.'
    assert [part.content for part in parent_model.requests[-1].tool_returns] == ['mine']


async def test_declared_subagents_can_be_reached(ask: Any) -> None:
    """By default every declared subagent can be called, at any level.

    A higher limit of its own changes nothing, and a subagent without declared subagents has no `task`.

    """
    for options in ({}, {'max_depth': 3}, {'max_depth': 9}):
        leaf = ScriptedModel(then=lambda m, i: f'leaf {sorted(tool.name for tool in i.function_tools)}')
        assert (await ask(nested('a', 'b', 'c', 'd', leaf=leaf, **options))).content == 'leaf []'


async def test_declared_subagents_of_deep_and_of_ready_agents_can_be_reached() -> None:
    """The same holds for agents built by the factory and for ready ones. The agent itself gets no `task`."""
    leaf = Subagent('leaf', 'x', model=ScriptedModel('leaf', 'leaf'))

    def mid(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        return hand_on(messages, 'leaf')

    ready = Subagent('ready', 'x', agent=create_deep_agent(ScriptedModel(then=mid), subagents=[leaf]))
    built = Subagent('mid', 'x', model=ScriptedModel(then=mid), max_depth=2, subagents=[leaf])
    general = ScriptedModel(
        [call('task', subagent=name, description='go') for name in ('mid', 'ready', 'general-purpose')],
        then=lambda m, i: 'general' if 'task' not in [tool.name for tool in i.function_tools] else 'done',
    )
    await create_deep_agent(general, subagents=[built, ready]).run('go', deps=DeepAgentDeps())
    returned = next(each.tool_returns for each in general.requests if len(each.tool_returns) == 3)
    assert [part.content for part in returned] == ['leaf', 'leaf', 'general']
