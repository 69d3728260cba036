"""Inherited and own settings of a child: limits, usage, model and model settings."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import SelectModel
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage, RunUsage, UsageLimits

from pydantic_deep import DeepAgentDeps
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import ping

pytestmark = pytest.mark.anyio


def worker(*steps: Answer, usage: RequestUsage | None = None, **options: Any) -> Subagent:
    model = ScriptedModel(*steps) if usage is None else ScriptedModel(*steps, usage=usage)
    return Subagent('worker', 'Works.', model=model, tools=[ping], **options)


# Inherited from the parent.


async def test_child_has_the_usage_limits_of_its_parent(ask: Any) -> None:
    usage = RunUsage(requests=60)
    returned = await ask(worker('answer'), usage=usage, usage_limits=UsageLimits(request_limit=500))
    assert (returned.content, usage.requests) == ('answer', 63)


async def test_usage_of_a_child_counts_in_its_parent(ask: Any) -> None:
    usage = RunUsage()
    await ask(worker(call('ping'), call('ping'), 'answer'), usage=usage)
    assert (usage.requests, usage.tool_calls, usage.input_tokens) == (5, 3, 500)


async def test_limit_of_the_parent_fails_the_child_then_the_parent() -> None:
    model = ScriptedModel(call('task', subagent='worker', description='x'), 'done')
    parent = Agent(model, capabilities=[Subagents([worker(*[call('ping')] * 5)])])
    failed: list[str] = []

    @parent.instructions
    def look(ctx: RunContext[object]) -> str:
        parts = [part for message in ctx.messages for part in message.parts if isinstance(part, ToolReturnPart)]
        failed.extend(f'{part.outcome}: {part.content}' for part in parts)
        return ''

    usage = RunUsage()
    with pytest.raises(UsageLimitExceeded):
        await parent.run('go', usage=usage, usage_limits=UsageLimits(request_limit=3))
    assert usage.requests == 3
    [told] = failed
    assert told.startswith("failed: The subagent 'worker' was stopped by a limit: The next request would")


async def test_model_settings_of_the_parent_reach_the_child(ask: Any) -> None:
    child = worker('answer')
    settings = ModelSettings(temperature=0.5, max_tokens=7)
    await ask(child, model_settings=settings)
    assert isinstance(child.model, ScriptedModel)
    assert child.model.requests[0].settings == settings


async def test_model_settings_of_the_child_have_precedence(ask: Any) -> None:
    model = ScriptedModel('answer', settings=ModelSettings(seed=1))
    agent = Agent(model, model_settings=ModelSettings(temperature=0.1))
    await ask(
        Subagent('worker', 'Works.', agent=agent), model_settings=ModelSettings(temperature=0.9, seed=2, max_tokens=3)
    )
    assert model.requests[0].settings == ModelSettings(temperature=0.1, seed=1, max_tokens=3)


async def test_tool_choice_is_not_inherited(ask: Any) -> None:
    child = worker('answer')
    await ask(child, model_settings=ModelSettings(tool_choice='auto', temperature=0.5))
    assert isinstance(child.model, ScriptedModel)
    assert child.model.requests[0].settings == ModelSettings(temperature=0.5)


async def test_run_settings_of_the_parent_apply_to_an_inherited_model() -> None:
    model = ScriptedModel(
        call('task', subagent='worker', description='x'),
        'answer',
        call('task', subagent='general-purpose', description='x'),
        'answer',
        'done',
        settings=ModelSettings(temperature=0.1, seed=1, top_p=0.5),
    )
    parent = Agent(
        model, capabilities=[Subagents([Subagent('worker', 'x')])], model_settings=ModelSettings(temperature=0.2)
    )
    await parent.run('go', deps=DeepAgentDeps(), model_settings=ModelSettings(temperature=0.3))
    assert [request.settings for request in model.requests] == [ModelSettings(temperature=0.3, seed=1, top_p=0.5)] * 5


async def test_own_settings_of_a_child_without_a_model_have_precedence() -> None:
    model = ScriptedModel(
        call('task', subagent='worker', description='x'), 'answer', 'done', settings=ModelSettings(temperature=0.1)
    )
    agent = Agent(model_settings=ModelSettings(temperature=0.7))
    parent = Agent(model, capabilities=[Subagents([Subagent('worker', 'x', agent=agent)])])
    await parent.run('go', deps=DeepAgentDeps(), model_settings=ModelSettings(temperature=0.3))
    assert [(request.settings or {}).get('temperature') for request in model.requests] == [0.3, 0.7, 0.3]


async def test_child_without_a_model_uses_the_model_of_the_parents_run() -> None:
    model = ScriptedModel(call('task', subagent='worker', description='x'), 'answer', 'done')
    parent = Agent('test', capabilities=[Subagents([Subagent('worker', 'x')])])
    assert (await parent.run('go', deps=DeepAgentDeps(), model=model)).output == 'done'
    assert len(model.requests) == 3


async def test_general_purpose_subagent_uses_the_model_of_the_parents_run() -> None:
    model = ScriptedModel(call('task', subagent='general-purpose', description='x'), 'answer', 'done')
    parent = Agent(ScriptedModel(), capabilities=[Subagents()])
    assert (await parent.run('go', deps=DeepAgentDeps(), model=model)).output == 'done'


async def test_model_of_a_subagent_overrides_the_model_of_its_agent(ask: Any) -> None:
    child = Subagent('worker', 'Works.', agent=Agent(ScriptedModel('own')), model=ScriptedModel('given'))
    assert (await ask(child)).content == 'given'


async def test_child_uses_the_model_selected_by_its_capability(ask: Any) -> None:
    selected = ScriptedModel('selected')
    agent = Agent(capabilities=[SelectModel(lambda ctx: selected)])
    assert (await ask(Subagent('worker', 'Works.', agent=agent))).content == 'selected'


async def test_agent_built_without_a_model_uses_the_model_of_the_subagent(ask: Any) -> None:
    child = Subagent('worker', 'Works.', model=ScriptedModel('described'))
    capability = Subagents([child], build=lambda subagent: Agent(name=subagent.name))
    assert (await ask(child, capability=capability)).content == 'described'
