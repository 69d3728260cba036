"""The budget of a delegation, which applies to all runs below it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import CostNotFoundWarning
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.usage import RequestUsage, RunUsage, UsageLimits

from pydantic_deep import DeepAgentDeps
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import ping

pytestmark = pytest.mark.anyio


def worker(*steps: Answer, usage: RequestUsage | None = None, **options: Any) -> Subagent:
    model = ScriptedModel(*steps) if usage is None else ScriptedModel(*steps, usage=usage)
    return Subagent('worker', 'Works.', model=model, tools=[ping], **options)


@pytest.mark.parametrize(
    ('limits', 'said'),
    [
        (UsageLimits(request_limit=2), 'The next request would exceed the request_limit of 2'),
        (UsageLimits(total_tokens_limit=250), 'Exceeded the total_tokens_limit of 250'),
        (UsageLimits(output_tokens_limit=15), 'Exceeded the output_tokens_limit of 15'),
        (UsageLimits(per_request_input_tokens_limit=99), 'Exceeded the per_request_input_tokens_limit of 99'),
        (UsageLimits(tool_calls_limit=1), 'The next tool call(s) would exceed the tool_calls_limit of 1'),
        (UsageLimits(cost_limit=Decimal('0.5')), 'Exceeded the `cost_limit` of 0.5'),
    ],
)
async def test_exceeded_budget_of_a_child_fails_with_a_report(ask: Any, limits: UsageLimits, said: str) -> None:
    used = RequestUsage(input_tokens=100, output_tokens=10, cost=Decimal('0.3'))
    returned = await ask(worker(*[call('ping')] * 9, usage=used, usage_limits=limits), usage=RunUsage(requests=40))
    assert returned.outcome == 'failed'
    assert returned.content.startswith(f"The subagent 'worker' exceeded its budget: {said}")
    assert '- ping({}): ' in returned.content


async def test_concurrent_calls_count_before_they_end(ask: Any) -> None:
    ran: list[int] = []

    async def slow(i: int) -> str:
        ran.append(i)
        return 'ok'

    child = Subagent(
        'worker',
        'Works.',
        model=ScriptedModel([call('slow', i=i) for i in range(4)]),
        tools=[slow],
        usage_limits=UsageLimits(tool_calls_limit=2),
    )
    returned = await ask(child)
    assert returned.outcome == 'failed'
    assert len(ran) == 2


async def test_failed_call_does_not_count(ask: Any) -> None:
    model = ScriptedModel(call('ping', x=1), call('ping'), 'answer')
    child = Subagent('worker', 'x', model=model, tools=[ping], usage_limits=UsageLimits(tool_calls_limit=1))
    returned = await ask(child)
    assert (returned.content, returned.metadata['usage']['tool_calls']) == ('answer', 1)


async def test_siblings_have_separate_budgets(parent: Callable[..., Agent[Any, Any]]) -> None:
    def play(messages: Any, info: Any) -> Answer:
        return call('ping') if len(messages) < 4 else 'answer'

    child = Subagent(
        'worker', 'x', model=ScriptedModel(then=play), tools=[ping], usage_limits=UsageLimits(request_limit=3)
    )
    tasks = [call('task', subagent='worker', description=str(i)) for i in range(3)]
    agent = parent(tasks, 'done', subagents=[child])
    result = await agent.run('go', deps=DeepAgentDeps())
    parts = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [(part.content, part.metadata['usage']['requests']) for part in parts] == [('answer', 3)] * 3
    assert result.usage.requests == 11


async def test_nested_children_draw_on_the_budget_of_their_parent(ask: Any) -> None:
    inner = Subagent('inner', 'x', model=ScriptedModel(*[call('ping')] * 9), tools=[ping])
    task = call('task', subagent='inner', description='x')
    outer = Subagent(
        'worker', 'x', model=ScriptedModel(task), subagents=[inner], usage_limits=UsageLimits(request_limit=4)
    )
    usage = RunUsage()
    returned = await ask(outer, deps=DeepAgentDeps(max_depth=2), usage=usage)
    assert returned.content.startswith("The subagent 'worker' exceeded its budget: The next request would exceed")
    assert '- task(' in returned.content
    assert usage.requests == 6


async def test_an_unknown_cost_is_reported(ask: Any) -> None:
    with pytest.warns(CostNotFoundWarning):
        returned = await ask(worker('answer', usage_limits=UsageLimits(cost_limit=Decimal(1))))
    assert returned.content == 'answer'
