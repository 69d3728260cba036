"""Agents of subagents: built on first use, or given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent

from pydantic_deep import DeepAgentDeps
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import ScriptedModel, call, deps_for_test

from .conftest import worker

pytestmark = pytest.mark.anyio


def counting(built: list[str]) -> Callable[[Subagent], Agent[Any, Any]]:
    def build(subagent: Subagent) -> Agent[Any, Any]:
        built.append(f'{subagent.name}: {subagent.instructions}')
        return Agent(subagent.model, name=subagent.name)

    return build


async def test_subagent_is_built_once_per_deps_on_first_use(ask: Any) -> None:
    built: list[str] = []
    capability = Subagents([worker('a', 'b'), Subagent('other', 'x')], build=counting(built))
    deps = deps_for_test()
    assert built == []
    await ask(*capability.subagents, capability=capability, deps=deps)
    await ask(*capability.subagents, capability=capability, deps=deps)
    assert built == ['worker: None']
    assert list(deps.subagents) == ['worker']


async def test_concurrent_first_uses_build_once() -> None:
    built: list[str] = []
    child = Subagent('worker', 'Works.', model=ScriptedModel(then=lambda m, i: 'x'))
    model = ScriptedModel([call('task', subagent='worker', description=str(i)) for i in range(5)], 'done')
    capability = Subagents([child], build=counting(built))
    await Agent(model, capabilities=[capability]).run('go', deps=DeepAgentDeps())
    assert built == ['worker: None']


async def test_a_changed_description_is_rebuilt(ask: Any) -> None:
    built: list[str] = []
    deps, build = DeepAgentDeps(), counting(built)
    for instructions in ('one', 'two', 'two'):
        child = Subagent('worker', 'Works.', model='test', instructions=instructions)
        await ask(child, capability=Subagents([child], build=build), deps=deps)
    assert built == ['worker: one', 'worker: two']


async def test_agent_supplied_in_deps_has_precedence(ask: Any) -> None:
    mine = Agent(ScriptedModel('mine', 'mine'))
    assert (await ask(worker('x'), deps=DeepAgentDeps(subagents={'worker': mine}))).content == 'mine'
    ready = Subagent('worker', 'Works.', agent=Agent(ScriptedModel('ready')))
    assert (await ask(ready, deps=DeepAgentDeps(subagents={'worker': mine}))).content == 'mine'


async def test_supplied_general_purpose_agent_has_precedence() -> None:
    mine = Agent(ScriptedModel('mine'))
    model = ScriptedModel(call('task', subagent='general-purpose', description='x'), 'done')
    await Agent(model, capabilities=[Subagents()]).run('go', deps=DeepAgentDeps(subagents={'general-purpose': mine}))
    assert [part.content for part in model.requests[-1].tool_returns] == ['mine']


async def test_invalid_agent_in_deps_fails_the_call(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    returned = await ask(worker('x'), deps=DeepAgentDeps(subagents={'worker': 'openai:gpt'}))
    assert returned.outcome == 'failed'
    assert "`deps.subagents['worker']` is str, which is not an agent" in returned.content


async def test_builder_that_raises_fails_the_call(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    def build(subagent: Subagent) -> Agent[Any, Any]:
        raise LookupError('no such skill')

    child = worker('x')
    returned = await ask(child, capability=Subagents([child], build=build))
    assert (returned.outcome, returned.content) == (
        'failed',
        "The subagent 'worker' cannot be built: LookupError: no such skill",
    )
    assert caplog.messages == ["Subagent 'worker' cannot be built"]


async def test_wrapped_agent_is_accepted(ask: Any) -> None:
    wrapped = WrapperAgent(Agent(ScriptedModel('wrapped')))
    assert (await ask(Subagent('worker', 'x', agent=wrapped))).content == 'wrapped'
