"""Summaries of runs whose requests are limited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelContextWindowExceededError, UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import UsageLimits

from pydantic_deep import (
    Budget,
    Budgets,
    DeepAgentDeps,
    LoopDetection,
    Subagent,
    Summarization,
    VersionedAgent,
    create_deep_agent,
    open_store,
)
from pydantic_deep.budgets._capability import LAST_ANSWER
from pydantic_deep.summarization import HistorySummarizedEvent, Messages
from pydantic_deep.summarization._text import ASK
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

Script = Callable[[list[ModelMessage], AgentInfo], ModelResponse]


def working(tool: str = 'look', **args: object) -> Script:
    """Return a script that calls a tool until it is asked for a summary or for its last answer."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = str(messages[-1].parts[-1].content)  # type: ignore[union-attr]
        if last == ASK:
            return ModelResponse([TextPart('summary')])
        if last == LAST_ANSWER:
            return ModelResponse([TextPart('report')])
        return ModelResponse([call(tool, **args)])

    return answer


def agent_of(model: ScriptedModel, *capabilities: Any, **options: Any) -> Agent[object, str]:
    agent: Agent[object, str] = Agent(model, deps_type=object, capabilities=list(capabilities), **options)

    @agent.tool_plain
    def look() -> str:
        return 'nothing'

    return agent


def summaries(model: ScriptedModel) -> int:
    return sum(
        isinstance(part, UserPromptPart) and part.content == ASK
        for request in model.requests
        for part in request.messages[-1].parts
    )


SUMMARIZATION = Summarization(trigger=Messages(4), keep=Messages(2))


@pytest.mark.parametrize('is_outer', [False, True])
@pytest.mark.parametrize('requests', range(1, 9))
async def test_summary_leaves_the_last_answer_of_a_budget(requests: int, is_outer: bool) -> None:
    model = ScriptedModel(then=working())
    budgets = Budgets(run=Budget(requests=requests))
    order = [budgets, SUMMARIZATION] if is_outer else [SUMMARIZATION, budgets]
    result = await agent_of(model, *order).run('go')
    assert result.output == 'report'
    assert len(model.requests) == result.usage.requests <= requests
    assert (summaries(model) > 0) == (requests > 3 + is_outer)


@pytest.mark.parametrize('requests', range(1, 9))
async def test_summary_is_not_requested_instead_of_the_last_request_of_a_limit(requests: int) -> None:
    model = ScriptedModel(then=working())
    with pytest.raises(UsageLimitExceeded):
        await agent_of(model, SUMMARIZATION).run('go', usage_limits=UsageLimits(request_limit=requests))
    assert len(model.requests) == requests
    assert (summaries(model) > 0) == (requests > 3)


async def test_parallel_subagents_with_summaries_do_not_exceed_a_budget() -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        is_parent = any('task' in tool.name for tool in info.function_tools)
        if is_parent and len(messages) == 1:
            return ModelResponse([call('task', description=f'{index}') for index in range(4)])
        if is_parent:
            return ModelResponse([TextPart('end')])
        return working('ls', path='/')(messages, info)

    for requests in range(6, 24):
        model = ScriptedModel(then=answer)
        agent = create_deep_agent(
            model,
            loop_detection=False,
            capabilities=[SUMMARIZATION, Budgets(run=Budget(requests=requests))],
        )
        result = await agent.run('go', deps=DeepAgentDeps())
        assert result.output == 'end'
        assert len(model.requests) <= requests


@pytest.mark.parametrize('requests', range(1, 9))
async def test_summary_does_not_exceed_the_limits_of_a_subagent(requests: int) -> None:
    child = ScriptedModel(then=working('ls', path='/'))
    subagent = Subagent(
        'child',
        'Works.',
        model=child,
        usage_limits=UsageLimits(request_limit=requests),
        capabilities=[SUMMARIZATION, LoopDetection(exclude=['ls'])],
    )
    model = ScriptedModel(call('task', subagent='child', description='Work'), 'end')
    result = await create_deep_agent(model, subagents=[subagent]).run('go', deps=DeepAgentDeps())
    assert result.output == 'end'
    assert len(child.requests) == requests
    assert (summaries(child) > 0) == (requests > 3)


class SmallModel(ScriptedModel):
    """A summarizer that reads a transcript in several requests."""

    @property
    def context_window(self) -> int | None:
        return 20


@pytest.mark.parametrize('requests', range(4, 14))
@pytest.mark.parametrize('is_subagent', [False, True])
async def test_summary_in_several_requests_does_not_exceed_a_limit(requests: int, is_subagent: bool) -> None:
    """Each of its requests counts at once. One that the limit does not allow ends the summary, and the run goes on."""
    summarizer = SmallModel(then=lambda messages, info: ModelResponse([TextPart('s')]))
    summarization = Summarization(trigger=Messages(4), keep=Messages(2), summarizer=summarizer)
    limits = UsageLimits(request_limit=requests)
    worker = ScriptedModel(then=working('ls', path='/'))
    capabilities = [summarization, LoopDetection(exclude=['ls'])]
    if is_subagent:
        subagent = Subagent('child', 'Works.', model=worker, usage_limits=limits, capabilities=capabilities)
        model = ScriptedModel(call('task', subagent='child', description='Work'), 'end')
        await create_deep_agent(model, subagents=[subagent]).run('go', deps=DeepAgentDeps())
    else:
        agent = create_deep_agent(worker, capabilities=capabilities)
        with pytest.raises(UsageLimitExceeded):
            await agent.run('go', deps=DeepAgentDeps(), usage_limits=limits)
    assert len(worker.requests) + len(summarizer.requests) == requests
    assert (len(summarizer.requests) > 0) == (requests > 3)


def refusing(answer: Script, *, length: int) -> Script:
    """Return a script that refuses the first request with this number of messages as too long."""
    refused: list[object] = []

    def step(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == length and not refused:
            refused.append(messages)
            raise ModelContextWindowExceededError('m', 'too long')
        return answer(messages, info)

    return step


async def test_request_that_is_too_long_gets_a_plain_summary_at_the_end_of_a_budget() -> None:
    model = ScriptedModel(then=refusing(working(), length=5))
    agent = agent_of(model, Summarization(trigger=(), keep=Messages(2)), Budgets(run=Budget(requests=3)))
    async with agent.run_stream_events('go') as events:
        seen = [event async for event in events if isinstance(event, HistorySummarizedEvent)]
    assert [(event.reason, event.is_plain, event.error) for event in seen] == [
        ('overflow', True, 'NoSummaryError: The limits of the run allow no request for a summary.')
    ]
    assert events.result is not None
    assert events.result.output == 'report'
    assert summaries(model) == 0


@pytest.mark.parametrize('requests', range(2, 12))
async def test_replay_counts_recorded_summaries_in_budgets(requests: int) -> None:
    model = ScriptedModel(then=working('ls', path='/'))
    budgets = Budgets(run=Budget(requests=requests))
    agent = create_deep_agent(model, loop_detection=False, capabilities=[SUMMARIZATION, budgets])
    async with open_store('memory:') as store:
        version = await (await VersionedAgent(agent, store).create()).advance('go')
        assert version.output == 'report'
        made = len(model.requests)
        replay = await version.replay()
        assert replay, replay.difference
        assert len(model.requests) == made == version.usage.requests


async def test_replay_with_another_trigger_requests_no_summary() -> None:
    model = ScriptedModel(*[call('ls', path=f'/{index}') for index in range(4)], 'done')
    async with open_store('memory:') as store:
        version = await (await VersionedAgent(create_deep_agent(model), store).create()).advance('go')
        earlier = create_deep_agent(model, capabilities=[SUMMARIZATION])
        replay = await (await VersionedAgent(earlier, store).load(version.id)).replay()
    assert model.remaining == 0
    assert replay.difference is not None
    assert replay.difference.capabilities == ('Summarization',)
    assert len(model.requests) == 5
