"""The cases with everything on that are the same for every contestant on pydantic-ai: delegations, skills, approvals.

A contestant hands in how it runs; what is asked of it, and that it did its work, is here.
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
"""Says yes to all that waits."""


def answering() -> FunctionModel:
    """Return the model of a subagent that answers at once."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        usage = RequestUsage(input_tokens=100, output_tokens=10)
        return ModelResponse(parts=[TextPart(SUBAGENT_ANSWER)], usage=usage, model_name='scripted')

    return FunctionModel(answer, model_name='scripted')


def measure_delegation(run: Run, args: Mapping[str, object], sizes: Sizes) -> Figures:
    """Return the CPU time of a call of `task`: the request, the child's run of one request, the result.

    Args:
        run: Runs of an agent whose subagent answers at once.
        args: The arguments of `task` besides the description.
        sizes: How many calls, one a request.
    """
    calls = [('task', {**args, 'description': task_description(n)}) for n in range(sizes.delegations)]

    async def measure() -> float:
        require((await play(run, calls)).last_result, SUBAGENT_ANSWER)
        return await measure_cpu_ms(sizes.repeats, lambda: play(run, calls))

    return {'delegate_ms': asyncio.run(measure()) / sizes.delegations}


def measure_first_run(run: Run) -> Figures:
    """Return the CPU time of the first run of the first agent of a process: one request, answered by text."""
    return {'whole_first_run_ms': asyncio.run(measure_cpu_ms(1, lambda: play(run, [])))}


def measure_skills_start(without: Run, within: Run, sizes: Sizes, *, starts: int | None = None) -> Figures:
    """Return by how much a run of one request takes longer for an agent with many skills.

    Args:
        without: Runs of an agent without skills.
        within: Runs of one that has them.
        sizes: How many runs are compared.
        starts: How many, for a contestant for whom one takes seconds.
    """
    times = min(sizes.starts, starts or sizes.starts)
    return {'skills_run_ms': asyncio.run(measure_more_ms(times, lambda: play(without, []), lambda: play(within, [])))}


def measure_approval(
    agent: AbstractAgent[Any, Any], new_deps: Callable[[], object], answers: Answers, sizes: Sizes
) -> Figures:
    """Return the CPU time of a write that waits: a run that pauses, its conversation as JSON and back, a run that ends.

    Args:
        agent: Gates `write_file`.
        new_deps: Makes the deps of both runs.
        answers: Says yes.
        sizes: How many.
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
    """Do some work so often."""
    for _ in range(times):
        await work()


def approve_all(requests: DeferredToolRequests) -> DeferredToolResults:
    """Say yes with pydantic-ai's own means."""
    return DeferredToolResults(approvals={call.tool_call_id: True for call in requests.approvals})
