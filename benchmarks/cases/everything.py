"""Cases of fully featured agents that are the same for all contestants on pydantic-ai: delegations, skills, approvals.

A contestant passes in how it runs. The tasks, and the checks that it did its work, are here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from loop import Run, Script, play, write_and_read
from measure import SUBAGENT_ANSWER, Figures, Sizes, measure_cpu_ms, measure_more_ms, require, task_description
from pydantic_ai import ConversationTypeAdapter, DeferredToolRequests, DeferredToolResults
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

Answers: TypeAlias = Callable[[DeferredToolRequests], DeferredToolResults]
"""Approves all pending calls."""


def answering() -> FunctionModel:
    """Return the model of a subagent that answers immediately."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        usage = RequestUsage(input_tokens=100, output_tokens=10)
        return ModelResponse(parts=[TextPart(SUBAGENT_ANSWER)], usage=usage, model_name='scripted')

    return FunctionModel(answer, model_name='scripted')


def measure_delegation(run: Run, args: Mapping[str, object], sizes: Sizes) -> Figures:
    """Return the CPU time of a call of `task`: the request, the child's run of one request, the result.

    Args:
        run: Runs of an agent with a subagent that answers immediately.
        args: The arguments of `task` besides the description.
        sizes: The number of calls, one per request.
    """
    calls = [('task', {**args, 'description': task_description(n)}) for n in range(sizes.delegations)]

    async def measure() -> float:
        require((await play(run, calls)).last_result, SUBAGENT_ANSWER)
        return await measure_cpu_ms(sizes.repeats, lambda: play(run, calls))

    return {'delegate_ms': asyncio.run(measure()) / sizes.delegations}


def measure_first_run(run: Run) -> Figures:
    """Return the CPU time of the first run of the first agent in a process: one request, answered with text."""
    return {'whole_first_run_ms': asyncio.run(measure_cpu_ms(1, lambda: play(run, [])))}


def measure_skills_start(without: Run, within: Run, sizes: Sizes, *, starts: int | None = None) -> Figures:
    """Return the additional time of a run of one request for an agent with many skills.

    Args:
        without: Runs of an agent without skills.
        within: Runs of an agent with skills.
        sizes: The number of runs to compare.
        starts: A lower number, for a contestant that takes seconds per run.
    """
    times = min(sizes.starts, starts or sizes.starts)
    return {'skills_run_ms': asyncio.run(measure_more_ms(times, lambda: play(without, []), lambda: play(within, [])))}


def measure_approval(
    agent: AbstractAgent[Any, Any], new_deps: Callable[[], object], answers: Answers, sizes: Sizes
) -> Figures:
    """Return the CPU time of a write with approval: a run that pauses, a JSON round trip of its conversation, a second
    run.

    Args:
        agent: An agent that gates `write_file`.
        new_deps: Creates the deps of both runs.
        answers: Approves the calls.
        sizes: The number of repetitions.
    """

    async def once() -> str:
        script = Script(write_and_read(1))
        model: Model = script.model
        deps = new_deps()
        paused = await agent.run('Go on.', model=model, deps=deps)
        saved = ConversationTypeAdapter.dump_json(paused.conversation)
        conversation = ConversationTypeAdapter.validate_json(saved)
        requests = conversation.deferred_tool_requests
        if not isinstance(requests, DeferredToolRequests):
            raise TypeError(f'The run did not pause: {paused.output!r}.')
        await agent.run(conversation=conversation, deferred_tool_results=answers(requests), model=model, deps=deps)
        return script.last_result

    async def measure() -> float:
        require(await once(), '0.txt')
        return await measure_cpu_ms(sizes.repeats, lambda: repeat(once, sizes.approvals))

    return {'approve_ms': asyncio.run(measure()) / sizes.approvals}


async def repeat(work: Callable[[], Awaitable[object]], times: int) -> None:
    """Repeat some work."""
    for _ in range(times):
        await work()


def approve_all(requests: DeferredToolRequests) -> DeferredToolResults:
    """Approve all calls with pydantic-ai's own mechanism."""
    return DeferredToolResults(approvals={call.tool_call_id: True for call in requests.approvals})
