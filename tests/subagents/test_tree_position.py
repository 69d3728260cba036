"""Levels of the tree of subagents, and its limits."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import DeepAgentDeps
from pydantic_deep.subagents import InvalidSubagentError, Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import Theirs, nested, returns, worker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(('deps', 'options'), [(DeepAgentDeps(max_depth=1), {}), (DeepAgentDeps(), {'max_depth': 0})])
async def test_limit_that_hides_declared_subagents_is_logged(
    ask: Any, caplog: pytest.LogCaptureFixture, deps: DeepAgentDeps, options: dict[str, int]
) -> None:
    """If a depth limit leaves no level for declared subagents, the log names both."""
    leaf = ScriptedModel('leaf')
    capability = Subagents([nested('a', 'b', leaf=leaf, **options)])
    returned = await ask(nested('a', 'b', leaf=leaf, **options), deps=deps, capability=capability)
    assert (returned.content, len(leaf.requests)) == ('no task', 0)
    [said] = [record.message for record in caplog.records if 'max_depth' in record.message]
    assert said.startswith("The subagent 'a' cannot call the subagents that it declares ('b'): `max_depth` of the deps")


def test_declaring_too_many_levels_is_refused() -> None:
    """The number of declared levels is limited, and the error states the limit."""
    leaf = ScriptedModel('leaf')
    assert nested(*map(str, range(16)), leaf=leaf).name == '0'
    with pytest.raises(InvalidSubagentError, match='more than 16 levels of subagents are declared'):
        nested(*map(str, range(17)), leaf=leaf)
    below = nested(*map(str, range(16)), leaf=leaf)
    with pytest.raises(InvalidSubagentError, match='more than 16 levels'):
        Subagent('ready', 'x', agent=Agent(leaf, capabilities=[Subagents([below])]))


async def test_deepest_allowed_tree_runs(ask: Any) -> None:
    """All sixteen levels are reached."""
    assert (await ask(nested(*map(str, range(16)), leaf=ScriptedModel('leaf')))).content == 'leaf'


async def test_endlessly_built_levels_end_at_the_limit() -> None:
    """A builder that gives every agent a subagent is stopped at the limit, with an error that shows the chain."""
    deepest: list[str] = []

    def then(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        found = returns(messages)
        if not found:
            return call('task', subagent='a', description='on')
        deepest.append(str(found[-1].content))
        return 'done'

    again = Subagent('a', 'x')

    def build(subagent: Subagent) -> Agent[Any, Any]:
        return Agent(ScriptedModel(then=then), capabilities=[Subagents([again], build=build)])

    await Agent(ScriptedModel(then=then), capabilities=[Subagents([again], build=build)]).run(
        'go', deps=DeepAgentDeps()
    )
    chain = ' > '.join(['a'] * 17)
    assert deepest[0] == f'At most 16 levels of subagents run, so {chain} cannot. Do it yourself.'
    assert len(deepest) == 17


@pytest.mark.parametrize('deps', [DeepAgentDeps(max_depth=3), DeepAgentDeps(max_depth=9)])
async def test_a_depth_of_3_gives_three_levels(ask: Any, deps: DeepAgentDeps) -> None:
    places: list[Any] = []

    def place(ctx: RunContext[DeepAgentDeps]) -> str:
        places.append((ctx.metadata, ctx.deps.max_depth))
        return 'ok'

    inner = Subagent('c', 'x', model=ScriptedModel(call('place'), 'leaf'), tools=[place])
    middle = Subagent(
        'b', 'x', model=ScriptedModel(call('task', subagent='c', description='x'), 'b'), subagents=[inner]
    )
    outer = Subagent(
        'a', 'x', model=ScriptedModel(call('task', subagent='b', description='x'), 'a'), subagents=[middle]
    )
    returned = await ask(outer, deps=deps)
    assert deps.max_depth is not None
    left = deps.max_depth - 3
    assert returned.content == 'a'
    assert places == [({'pydantic_deep': {'path': ['a', 'b', 'c'], 'max_depth': left}}, left)]
    assert returned.metadata['usage']['requests'] == 6


async def test_subagent_can_allow_fewer_levels_than_its_parent(ask: Any) -> None:
    leaf = ScriptedModel('leaf', 'leaf')
    assert (await ask(nested('a', 'b', leaf=leaf, max_depth=0), deps=DeepAgentDeps(max_depth=9))).content == 'no task'
    assert (await ask(nested('a', 'b', leaf=leaf, max_depth=7), deps=DeepAgentDeps(max_depth=2))).content == 'leaf'


async def test_levels_are_counted_in_metadata_without_deep_deps() -> None:
    leaf = ScriptedModel('leaf')
    model = ScriptedModel(call('task', subagent='a', description='x'), 'done')
    parent = Agent(model, deps_type=Theirs, capabilities=[Subagents([nested('a', 'b', 'c', leaf=leaf)])])
    metadata: dict[str, Any] = {'mine': 1, 'pydantic_deep': {'path': [], 'max_depth': 3}}
    await parent.run('go', deps=Theirs('me'), metadata=metadata)
    assert model.requests[-1].tool_returns[0].content == 'leaf'


async def test_foreign_metadata_under_the_reserved_key_is_ignored(ask: Any) -> None:
    returned = await ask(worker('x'), metadata={'pydantic_deep': 'theirs'})
    assert returned.metadata['path'] == ['worker']


async def test_pending_call_beyond_the_depth_limit_is_refused_with_its_chain() -> None:
    child = worker()
    history: list[ModelMessage] = [ModelResponse([call('task', subagent='worker', description='x')])]
    model = ScriptedModel('done')
    parent = Agent(model, capabilities=[Subagents([child])])
    metadata: dict[str, Any] = {'pydantic_deep': {'path': ['a', 'b'], 'max_depth': 0}}
    await parent.run(message_history=history, deps=DeepAgentDeps(max_depth=0), metadata=metadata)
    [returned] = model.requests[0].tool_returns
    assert returned.outcome == 'failed'
    assert str(returned.content).startswith(
        'No more levels of subagents are allowed here, so a > b > worker cannot run.'
    )
    assert model.requests[0].tool_names == []
