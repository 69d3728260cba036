"""The agent of a conversation: its own configuration is added in each run, and the wrapped agent stays unchanged."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext, Tool, UserError

from pydantic_deep.testing import ScriptedModel, call
from tests.fluent.conftest import Begin, Told, Tools, times

pytestmark = pytest.mark.anyio


def plus(ctx: RunContext[object], a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_builders_add_to_the_configuration_of_the_conversation(begin: Begin) -> None:
    """001-15, 001-17: Instructions and tools are added, model and settings are replaced, from the next turn on."""
    first, second = ScriptedModel('1', model_name='first'), ScriptedModel('2', '3', model_name='second')
    agent = Agent(first, instructions='You are an agent.', model_settings={'max_tokens': 5})
    conversation = begin(agent).instructions('Be brief.').tools(times).settings(temperature=0.5).user('a').start()
    await conversation.run()
    toolset = FunctionToolset[object]([Tool(plus)])
    more = conversation.continuation.instructions('Be kind.').tools(toolset).model(second).settings(temperature=0)
    await more.user('b').prompt()
    await conversation.continuation.user('c').prompt()

    asked = [*first.requests, *second.requests]
    before, after = 'You are an agent.\n\nBe brief.', 'You are an agent.\n\nBe brief.\n\nBe kind.'
    assert [request.instructions for request in asked] == [before, after, after]
    assert [request.tool_names for request in asked] == [['times'], ['times', 'plus'], ['times', 'plus']]
    assert [request.settings for request in asked] == [
        {'max_tokens': 5, 'temperature': 0.5},
        {'max_tokens': 5, 'temperature': 0},
        {'max_tokens': 5, 'temperature': 0},
    ]


async def test_agent_is_not_changed_by_its_conversations(begin: Begin) -> None:
    """001-18: Configuration of one conversation is not visible in another."""
    model = ScriptedModel('1', '2')
    agent = Agent(model)
    await begin(agent).instructions('Be brief.').tools(times).settings(temperature=1).user('a').prompt()
    await begin(agent).user('a').prompt()
    assert (model.requests[1].instructions, model.requests[1].tool_names) == (None, [])
    assert model.requests[1].settings in (None, {})
    assert agent.name is None


async def test_tools_of_a_conversation_run_with_its_deps(begin: Begin) -> None:
    def whoami(ctx: RunContext[str]) -> str:
        return ctx.deps

    agent = Agent(ScriptedModel(call('whoami'), 'You are Ann.'), deps_type=str)
    conversation = begin(agent, deps='Ann').tools(whoami).user('Who am I?').start()
    await conversation.run()
    assert [exchange.result and exchange.result.content for exchange in conversation.messages.exchanges()] == ['Ann']


async def test_tools_with_the_same_name_are_refused(begin: Begin, tools: Tools, told: Told) -> None:
    """pydantic-ai raises the error, and the conversation is unchanged."""
    conversation = begin(tools.agent()).tools(tools.a).user('Go').start()
    with pytest.raises(UserError, match='conflicts with existing tool'):
        await conversation.run()
    assert told(conversation.messages) == ['user: Go']
