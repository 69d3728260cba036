"""Budgets of one run: warning, final answer, and no request beyond the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, UserError, capture_run_messages
from pydantic_ai.messages import ModelMessage, ModelResponse, SystemPromptPart, TextPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage, UsageLimits

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.budgets import (
    Budget,
    BudgetExceededError,
    Budgets,
    BudgetUnknownEvent,
    BudgetWarningEvent,
    LastAnswerEvent,
)
from pydantic_deep.budgets._capability import LAST_ANSWER, NO_TOOLS
from pydantic_deep.testing import Answer, FakeClock, ScriptedModel, call

pytestmark = pytest.mark.anyio

Make = Callable[..., ScriptedModel]
AgentOf = Callable[..., Agent[Any, Any]]
Notices = Callable[[Sequence[ModelMessage]], list[str]]


class _Report(BaseModel):
    text: str


def _choices(model: ScriptedModel) -> list[object]:
    return [(request.settings or {}).get('tool_choice') for request in model.requests]


async def test_the_last_request_is_made_without_tools(working: Make, agent_of: AgentOf, notices: Notices) -> None:
    model = working()
    result = await agent_of(model, Budgets(run=Budget(requests=3), warn_at=1)).run('go')
    assert result.output == 'what is done'
    assert result.usage.requests == 3
    assert _choices(model) == [None, None, 'none']
    assert notices(result.all_messages()) == [LAST_ANSWER]


async def test_tools_stay_declared_on_the_last_request_to_keep_the_prompt_cache(
    working: Make, agent_of: AgentOf
) -> None:
    model = working()
    await agent_of(model, Budgets(run=Budget(requests=2))).run('go')
    assert [request.tool_names for request in model.requests] == [['work'], ['work']]
    first, second = (request.messages for request in model.requests)
    assert second[: len(first)] == first


async def test_token_budget_ends_when_less_than_two_requests_remain(working: Make, agent_of: AgentOf) -> None:
    model = working()
    result = await agent_of(model, Budgets(run=Budget(tokens=550))).run('go')
    # After four requests 150 are left; one takes 100.
    assert _choices(model) == [None, None, None, None, 'none']
    assert result.usage.total_tokens == 500


async def test_cost_budget_ends_when_less_than_two_requests_remain(working: Make, agent_of: AgentOf) -> None:
    model = working(usage=RequestUsage(input_tokens=90, output_tokens=10, cost=Decimal('0.1')))
    result = await agent_of(model, Budgets(run=Budget(cost='0.35'))).run('go')
    assert _choices(model) == [None, None, 'none']
    assert result.usage.cost == Decimal('0.3')


async def test_time_budget_ends_based_on_the_last_request_duration(agent_of: AgentOf, clock: FakeClock) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        clock.advance(10)
        return 'what is done' if (info.model_settings or {}).get('tool_choice') == 'none' else call('work')

    model = ScriptedModel(then=answer)
    budgets = Budgets(run=Budget(seconds=45), clock=clock.monotonic)
    # A request takes 10 seconds, and the tool 5: the third begins when 15 are left.
    await agent_of(model, budgets, work=lambda: clock.advance(5)).run('go')
    assert _choices(model) == [None, None, 'none']
    assert clock.monotonic() == 40


async def test_tool_that_uses_up_the_time_ends_the_run(agent_of: AgentOf, clock: FakeClock) -> None:
    model = ScriptedModel(call('work'), 'never asked')
    budgets = Budgets(run=Budget(seconds=45), clock=clock.monotonic)
    with pytest.raises(BudgetExceededError) as raised:
        await agent_of(model, budgets, work=lambda: clock.advance(50)).run('go')
    assert (raised.value.measure, raised.value.used) == ('seconds', 50)
    assert model.remaining == 1


async def test_streamed_run_ends_with_a_final_answer(working: Make, agent_of: AgentOf) -> None:
    model = working()
    async with agent_of(model, Budgets(run=Budget(requests=2))).run_stream('go') as stream:
        assert await stream.get_output() == 'what is done'
    assert _choices(model) == [None, 'none']


async def test_output_tools_stay_available_on_the_last_request(agent_of: AgentOf) -> None:
    model = ScriptedModel(call('work'), call('final_result', text='so far'))
    result = await agent_of(model, Budgets(run=Budget(requests=2)), output_type=_Report).run('go')
    assert result.output == _Report(text='so far')
    assert model.requests[-1].tool_names == ['work', 'final_result']


async def test_model_that_ignores_the_last_request_is_stopped(agent_of: AgentOf, notices: Notices) -> None:
    model = ScriptedModel(then=lambda messages, info: call('work'))
    with capture_run_messages() as messages, pytest.raises(BudgetExceededError) as raised:
        await agent_of(model, Budgets(run=Budget(tokens=330), warn_at=1)).run('go')
    assert (raised.value.measure, raised.value.limit, raised.value.used) == ('tokens', 330, 330)
    assert len(model.requests) == 3
    assert len([message for message in messages if isinstance(message, ModelResponse)]) == 3
    assert notices(messages) == [LAST_ANSWER]


async def test_response_may_exceed_the_token_budget_but_no_request_follows(agent_of: AgentOf) -> None:
    big = ModelResponse(parts=[call('work')], usage=RequestUsage(input_tokens=10_000))
    model = ScriptedModel(big, 'never asked')
    with pytest.raises(BudgetExceededError) as raised:
        await agent_of(model, Budgets(run=Budget(tokens=100))).run('go')
    assert raised.value.used == 10_000
    assert model.remaining == 1


async def test_final_answer_over_budget_is_returned() -> None:
    model = ScriptedModel(ModelResponse(parts=[TextPart('all of it')], usage=RequestUsage(input_tokens=10_000)))
    assert (await Agent(model, capabilities=[Budgets(run=Budget(tokens=100))]).run('go')).output == 'all of it'


async def test_the_model_is_warned_once(working: Make, agent_of: AgentOf, notices: Notices, watch: Any) -> None:
    result = await agent_of(working(), Budgets(run=Budget(tokens=1_000))).run('go', event_stream_handler=watch)
    assert notices(result.all_messages()) == ['Budget used: 800 of 1,000 tokens. Finish soon.', LAST_ANSWER]
    assert watch.events == [
        BudgetWarningEvent(
            scope='run', measure='tokens', limit=Decimal(1_000), used=Decimal(800), capability_id='budgets'
        ),
        LastAnswerEvent(
            scope='run', measure='tokens', limit=Decimal(1_000), used=Decimal(900), capability_id='budgets'
        ),
    ]


async def test_each_limit_has_its_own_warning(working: Make, agent_of: AgentOf, notices: Notices) -> None:
    budgets = Budgets(run=Budget(tokens=1_000, requests=8), warn_at=0.5)
    result = await agent_of(working(), budgets).run('go')
    assert notices(result.all_messages()) == [
        'Budget used: 4 of 8 requests. Finish soon.',
        'Budget used: 500 of 1,000 tokens. Finish soon.',
        LAST_ANSWER,
    ]


async def test_the_final_answer_message_replaces_the_warning(
    working: Make, agent_of: AgentOf, notices: Notices, watch: Any
) -> None:
    result = await agent_of(working(), Budgets(run=Budget(requests=1))).run('go', event_stream_handler=watch)
    assert notices(result.all_messages()) == [LAST_ANSWER]
    assert [type(event) for event in watch.events] == [BudgetWarningEvent, LastAnswerEvent]


async def test_no_warning_below_the_threshold(working: Make, agent_of: AgentOf, notices: Notices, watch: Any) -> None:
    budgets = Budgets(run=Budget(tokens=10**6, requests=100, seconds=3_600))
    result = await agent_of(working(call('work'), 'done'), budgets).run('go', event_stream_handler=watch)
    assert notices(result.all_messages()) == []
    assert watch.events == []
    assert all(message.metadata is None for message in result.all_messages())


async def test_unknown_price_is_reported_once(
    working: Make, agent_of: AgentOf, watch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    budgets = Budgets(run=Budget(cost=1))
    await agent_of(working(call('work'), call('work'), 'done'), budgets).run('go', event_stream_handler=watch)
    assert watch.events == [BudgetUnknownEvent(measure='cost', model_name='scripted', capability_id='budgets')]
    assert [record.message for record in caplog.records] == [
        "The cost of a response of model 'scripted' is unknown and does not count in the budget"
    ]


async def test_response_without_usage_is_reported(agent_of: AgentOf, watch: Any) -> None:
    silent = ScriptedModel('done', usage=RequestUsage(unmeasured_requests=1))
    budgets = Budgets(run=Budget(tokens=1_000, requests=5))
    await agent_of(silent, budgets).run('go', event_stream_handler=watch)
    assert watch.events == [BudgetUnknownEvent(measure='tokens', model_name='scripted', capability_id='budgets')]


async def test_nested_run_sharing_the_usage_counts_against_the_budget() -> None:
    other = Agent(ScriptedModel('a fact', usage=RequestUsage(input_tokens=900)))
    model = ScriptedModel(call('look_up'), 'never asked')
    agent = Agent(model, capabilities=[Budgets(run=Budget(tokens=1_000, requests=9))])

    @agent.tool
    async def look_up(ctx: RunContext[object]) -> str:
        return (await other.run('look', usage=ctx.usage)).output

    with pytest.raises(BudgetExceededError) as raised:
        await agent.run('go')
    assert raised.value.used == 1_010


async def test_run_budget_ignores_usage_from_before_the_run(working: Make, agent_of: AgentOf) -> None:
    agent = agent_of(working(), Budgets(run=Budget(requests=2)))
    first = await agent.run('go')
    second = await agent.run('again', conversation=first.conversation)
    assert second.usage.requests == 4


async def test_runs_of_one_agent_share_no_state(working: Make, agent_of: AgentOf) -> None:
    budgets = Budgets(run=Budget(requests=2))
    agent = agent_of(working(), budgets)
    assert [(await agent.run('go')).usage.requests for _ in range(2)] == [2, 2]
    assert repr(budgets) == 'Budgets(run=Budget(requests=2))'


async def test_repr_shows_the_usage(working: Make, agent_of: AgentOf, watch: Any) -> None:
    budgets = Budgets(run=Budget(tokens=1_000), conversation=Budget(requests=5))
    await agent_of(working('done'), budgets).run('go', event_stream_handler=watch)
    assert repr(watch.budgets) == (
        'Budgets(run=Budget(tokens=1000), conversation=Budget(requests=5), '
        'used: 100 of 1,000 tokens of the run, 1 of 5 requests of the conversation)'
    )


async def test_pydantic_ai_request_limit_applies_in_addition(working: Make, agent_of: AgentOf) -> None:
    agent = agent_of(working(), Budgets(run=Budget(requests=60)))
    with pytest.raises(Exception, match='request_limit of 50'):
        await agent.run('go')
    result = await agent.run('go', usage_limits=UsageLimits(request_limit=None))
    assert result.usage.requests == 60


def test_agent_accepts_only_one_budgets_capability() -> None:
    with pytest.raises(UserError, match='2 `Budgets`'):
        Agent('test', capabilities=[Budgets(run=Budget(tokens=1)), Budgets(run=Budget(tokens=2))])


async def test_budgets_work_in_a_deep_agent() -> None:
    model = ScriptedModel(call('write_todos', todos=[]), 'done')
    agent = create_deep_agent(model, capabilities=[Budgets(run=Budget(requests=2))])
    assert (await agent.run('go', deps=DeepAgentDeps())).output == 'done'
    assert _choices(model) == [None, 'none']


async def test_tool_called_in_the_last_answer_does_not_run() -> None:
    ran: list[str] = []
    model = ScriptedModel(call('work'), call('work'), 'what is done')
    agent = Agent(model, capabilities=[Budgets(run=Budget(requests=2))])

    @agent.tool_plain
    def work() -> str:
        ran.append('work')
        return 'worked'

    with capture_run_messages() as messages, pytest.raises(BudgetExceededError):
        await agent.run('go')
    assert ran == ['work']
    returns = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [(part.outcome, part.content) for part in returns] == [('success', 'worked'), ('failed', NO_TOOLS)]


async def test_final_answer_message_is_not_carried_into_later_runs(working: Make, agent_of: AgentOf) -> None:
    agent = agent_of(working(), Budgets(run=Budget(requests=3), warn_at=1))
    first = await agent.run('go')
    notes = [part for message in first.all_messages() for part in message.parts if isinstance(part, SystemPromptPart)]
    assert [(part.content, part.scope) for part in notes] == [(LAST_ANSWER, 'request')]
