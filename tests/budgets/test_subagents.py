"""Budgets in a tree of subagents: the parent's budgets limit its children too, in addition to their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from pydantic_deep import DeepAgentDeps
from pydantic_deep.budgets import Budget, BudgetExceededError, Budgets
from pydantic_deep.budgets._capability import LAST_ANSWER
from pydantic_deep.subagents import Shared, Subagent, Subagents
from pydantic_deep.testing import Answer, FakeClock, ScriptedModel, call

pytestmark = pytest.mark.anyio

Make = Callable[..., ScriptedModel]
AgentOf = Callable[..., Agent[Any, Any]]
Notices = Callable[[Sequence[ModelMessage]], list[str]]


def _tasks(*names: str) -> list[Any]:
    return [call('task', subagent=name, description='work') for name in names]


def _returns(model: ScriptedModel) -> list[ToolReturnPart]:
    return model.requests[-1].tool_returns


async def test_parent_budget_limits_its_child_and_both_give_a_final_answer(working: Make, agent_of: AgentOf) -> None:
    child = agent_of(working())
    model = working(_tasks('worker'))
    subagents = Subagents([Subagent('worker', 'Works.', agent=child)])
    result = await agent_of(model, subagents, Budgets(run=Budget(requests=6))).run('go')
    assert result.output == 'what is done'
    assert result.usage.requests == 6
    assert [(part.outcome, part.content) for part in _returns(model)] == [('success', 'what is done')]


async def test_child_reserves_the_tokens_its_parent_needs(working: Make, agent_of: AgentOf) -> None:
    child = working()
    model = working(ModelResponse(parts=_tasks('worker'), usage=RequestUsage(input_tokens=400)))
    subagents = Subagents([Subagent('worker', 'Works.', agent=agent_of(child))])
    result = await agent_of(model, subagents, Budgets(run=Budget(tokens=1_250))).run('go')
    # Of the remaining 850, 400 are reserved for the parent. Each request of the child uses 100.
    assert len(child.requests) == 4
    assert result.usage.total_tokens == 900
    assert result.output == 'what is done'


async def test_child_without_budget_left_fails_and_its_parent_answers(working: Make, agent_of: AgentOf) -> None:
    child, model = working(), working(_tasks('worker'))
    subagents = Subagents([Subagent('worker', 'Works.', agent=agent_of(child))])
    result = await agent_of(model, subagents, Budgets(run=Budget(requests=2))).run('go')
    assert result.output == 'what is done'
    assert child.requests == []


async def test_child_stopped_by_the_parent_budget_returns_a_failed_result(agent_of: AgentOf) -> None:
    child = ScriptedModel(then=lambda messages, info: call('work'))
    model = ScriptedModel(_tasks('worker'), 'the parent goes on')
    subagents = Subagents([Subagent('worker', 'Works.', agent=agent_of(child))])
    result = await agent_of(model, subagents, Budgets(run=Budget(requests=4))).run('go')
    assert result.output == 'the parent goes on'
    [failed] = _returns(model)
    assert failed.outcome == 'failed'
    assert 'The budget of 4 requests for the parent run is used up: 3 requests used, and the rest' in str(
        failed.content
    )
    assert len(child.requests) == 2


async def test_child_that_exhausts_its_own_budget_returns_a_failed_result(agent_of: AgentOf) -> None:
    child = ScriptedModel(then=lambda messages, info: call('work'))
    model = ScriptedModel(_tasks('worker'), 'the parent goes on')
    own = Budgets(run=Budget(tokens=200))
    subagents = Subagents([Subagent('worker', 'Works.', agent=agent_of(child, own))])
    result = await agent_of(model, subagents, Budgets(run=Budget(requests=30))).run('go')
    assert result.output == 'the parent goes on'
    [failed] = _returns(model)
    assert failed.outcome == 'failed'
    assert "The subagent 'worker' was stopped by a limit: The budget of 200 tokens for this run" in str(failed.content)
    assert 'work({}): success' in str(failed.content)


async def test_described_child_has_its_own_budget(working: Make, agent_of: AgentOf) -> None:
    child = working()
    model = ScriptedModel(_tasks('worker'), 'done')

    def work() -> str:
        return 'done'

    worker = Subagent('worker', 'Works.', model=child, tools=[work], capabilities=[Budgets(run=Budget(requests=2))])
    result = await Agent[Any, Any](model, capabilities=[Subagents([worker])]).run('go')
    assert result.usage.requests == 4
    assert [part.content for part in _returns(model)] == ['what is done']


async def test_stricter_of_child_and_parent_budget_applies(working: Make, agent_of: AgentOf) -> None:
    for own, above, expected in ((3, 30, 3), (30, 5, 3)):
        child = working()
        subagents = Subagents([Subagent('worker', 'Works.', agent=agent_of(child, Budgets(run=Budget(requests=own))))])
        await agent_of(working(_tasks('worker')), subagents, Budgets(run=Budget(requests=above))).run('go')
        assert len(child.requests) == expected


async def test_child_budget_is_counted_separately_from_siblings(working: Make, agent_of: AgentOf) -> None:
    models = {name: working(call('work'), call('work'), name) for name in ('one', 'two', 'three')}
    own = Budgets(run=Budget(tokens=500, requests=5))
    declared = [Subagent(name, 'Works.', agent=agent_of(model, own)) for name, model in models.items()]
    model = working(_tasks(*models), 'done')
    await agent_of(model, Subagents(declared)).run('go')
    assert [part.content for part in _returns(model)] == ['one', 'two', 'three']


async def test_concurrent_requests_never_exceed_the_budget(agent_of: AgentOf) -> None:
    begun = 0

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        nonlocal begun
        begun += 1
        await anyio.lowlevel.checkpoint()  # siblings make requests while it answers
        return call('work')

    names = [f'worker-{number}' for number in range(8)]
    declared = [Subagent(name, 'Works.', agent=agent_of(ScriptedModel(then=answer))) for name in names]
    model = ScriptedModel(_tasks(*names), 'done')
    result = await agent_of(model, Subagents(declared), Budgets(run=Budget(requests=13))).run('go')
    assert result.output == 'done'
    # One is reserved for the parent, which uses it.
    assert begun == 13 - 2
    assert result.usage.requests == 13


async def test_token_overshoot_is_at_most_one_response_per_concurrent_request(agent_of: AgentOf) -> None:
    answered = 0

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        nonlocal answered
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        answered += 1
        return call('work')

    names = ['one', 'two', 'three']
    usage = RequestUsage(input_tokens=100)
    declared = [Subagent(name, 'Works.', agent=agent_of(ScriptedModel(then=answer, usage=usage))) for name in names]
    model = ScriptedModel(ModelResponse(parts=_tasks(*names), usage=usage), 'never asked')
    with pytest.raises(BudgetExceededError) as raised:
        await agent_of(model, Subagents(declared), Budgets(run=Budget(tokens=350))).run('go')
    assert answered == 3
    assert raised.value.used == 400


async def test_grandchild_reserves_requests_for_all_its_ancestors(working: Make, agent_of: AgentOf) -> None:
    grandchild = working()
    child = working(_tasks('below'))
    below = Subagent('below', 'Works.', agent=agent_of(grandchild))
    middle = Subagent('middle', 'Works.', agent=agent_of(child, Subagents([below])))
    model = working(_tasks('middle'))
    agent = agent_of(model, Subagents([middle]), Budgets(run=Budget(requests=7)))
    result = await agent.run('go', deps=DeepAgentDeps(max_depth=2))
    assert result.output == 'what is done'
    assert result.usage.requests == 7
    assert (len(model.requests), len(child.requests), len(grandchild.requests)) == (2, 2, 3)


async def test_child_gets_the_final_answer_message_and_only_the_owner_gets_a_warning(
    working: Make, agent_of: AgentOf, notices: Notices
) -> None:
    child, model = working(), working(_tasks('worker'))
    subagents = Subagents([Subagent('worker', 'Works.', agent=agent_of(child))])
    result = await agent_of(model, subagents, Budgets(run=Budget(tokens=1_000), warn_at=0.5)).run('go')
    assert notices(child.requests[-1].messages) == [LAST_ANSWER]
    assert notices(result.all_messages()) == [LAST_ANSWER]


async def test_child_limited_by_two_budgets_gets_one_message(
    working: Make, agent_of: AgentOf, notices: Notices
) -> None:
    child, model = working(), working(_tasks('worker'))
    own = Budgets(run=Budget(requests=3))
    subagents = Subagents([Subagent('worker', 'Works.', agent=agent_of(child, own))])
    await agent_of(model, subagents, Budgets(run=Budget(requests=5))).run('go')
    assert len(child.requests) == 3
    assert notices(child.requests[-1].messages) == [LAST_ANSWER]


async def test_time_budget_includes_time_spent_in_a_child(agent_of: AgentOf, clock: FakeClock) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        clock.advance(10)
        return 'what is done' if (info.model_settings or {}).get('tool_choice') == 'none' else call('work')

    def delegate(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        clock.advance(10)
        return _tasks('worker') if len(messages) == 1 else 'done'

    child = ScriptedModel(then=answer)
    model = ScriptedModel(then=delegate)
    subagents = Subagents([Subagent('worker', 'Works.', agent=agent_of(child))])
    budgets = Budgets(run=Budget(seconds=55), clock=clock.monotonic)
    assert (await agent_of(model, subagents, budgets).run('go')).output == 'done'
    # 10 for the parent's first request, 30 for the child, 10 for the parent's answer.
    assert clock.monotonic() == 50


async def test_general_purpose_subagent_is_limited_too(working: Make, agent_of: AgentOf) -> None:
    model = working(_tasks('general-purpose'))
    result = await agent_of(model, Subagents(), Budgets(run=Budget(requests=5))).run('go')
    assert result.output == 'what is done'
    assert result.usage.requests == 5


async def test_shared_marker_has_no_effect_on_budgets(working: Make, agent_of: AgentOf) -> None:
    model = working(_tasks('worker'))
    subagents = Subagents([Subagent('worker', 'Works.', agent=agent_of(working()))])
    result = await agent_of(model, subagents, Shared(Budgets(run=Budget(requests=5)))).run('go')
    assert result.output == 'what is done'
    assert result.usage.requests == 5
    assert [part.content for part in _returns(model)] == ['what is done']


async def test_unknown_price_of_a_child_is_reported_once_to_the_parent(
    working: Make, agent_of: AgentOf, caplog: pytest.LogCaptureFixture
) -> None:
    priced = RequestUsage(input_tokens=1, cost=Decimal('0.01'))
    model = working(ModelResponse(parts=_tasks('worker', 'worker'), usage=priced), 'done', usage=priced)
    subagents = Subagents([Subagent('worker', 'Works.', agent=agent_of(working('a', 'b')))])
    await agent_of(model, subagents, Budgets(run=Budget(cost=1))).run('go')
    assert len([record for record in caplog.records if record.name == 'pydantic_deep']) == 1
