"""Ours, fully featured: todos, files and commands, a subagent besides the general-purpose one, skills, approvals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from everything import (
    answering,
    measure_approval,
    measure_delegation,
    measure_first_run,
    measure_skills_start,
)
from loop import NO_LIMIT, Run, measure_steps, measure_surface
from measure import (
    SUBAGENT,
    SUBAGENT_DESCRIPTION,
    SUBAGENT_INSTRUCTIONS,
    Case,
    Figures,
    Sizes,
    measure_creation,
    measure_discovery,
)
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

from pydantic_deep import (
    Approve,
    DeepAgentDeps,
    StateBackend,
    Subagent,
    answer_approvals,
    create_deep_agent,
    discover_skills,
    pending_approvals,
)
from pydantic_deep_backends.protocol import Command, CommandResult


class Machine(StateBackend):
    """An in-memory backend with a `run` method, so that the agent has `execute`. No case calls it."""

    async def run(
        self,
        command: Command,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Raise, as no case runs a command."""
        raise NotImplementedError('No case runs a command.')


def whole_agent(sizes: Sizes) -> Agent[DeepAgentDeps, str | DeferredToolRequests]:
    """Return a fully featured agent."""
    return create_deep_agent(
        subagents=[
            Subagent(SUBAGENT, SUBAGENT_DESCRIPTION, instructions=SUBAGENT_INSTRUCTIONS, model=answering()),
        ],
        skills=[sizes.four_skills],
        interrupt_on={'execute': True},
    )


def attempt_ids(agent: Agent[DeepAgentDeps, object], new_backend: Callable[[], StateBackend] = Machine) -> Run:
    """Return runs of an agent, each on a new backend."""

    async def run(model: Model, history: Sequence[ModelMessage]) -> object:
        deps = DeepAgentDeps(backend=new_backend())
        return await agent.run('Go on.', model=model, deps=deps, message_history=history, usage_limits=NO_LIMIT)

    return run


def _creation(sizes: Sizes) -> Figures:
    agents: list[Agent[DeepAgentDeps, str | DeferredToolRequests]] = []
    made = measure_creation(lambda: agents.append(whole_agent(sizes)), prefix='whole_')
    return {**made, **measure_first_run(attempt_ids(agents[0]))}


def _skills(sizes: Sizes) -> Figures:
    # A new object each time, so that a repeated discovery uses only the caches of the process.
    discovery = measure_discovery(lambda: len(discover_skills([Path(sizes.many_skills)]).skills), sizes)
    without, within = create_deep_agent(), create_deep_agent(skills=[sizes.many_skills])
    return {**discovery, **measure_skills_start(attempt_ids(without), attempt_ids(within), sizes)}


def _approval(sizes: Sizes) -> Figures:
    agent = create_deep_agent(interrupt_on={'write_file': True})
    return measure_approval(agent, lambda: DeepAgentDeps(backend=StateBackend()), _answers, sizes)


def _answers(requests: DeferredToolRequests) -> DeferredToolResults:
    return answer_approvals(requests, {each.id: Approve() for each in pending_approvals(requests)})


CASES: Mapping[str, Case] = {
    'whole': lambda sizes: measure_surface(attempt_ids(whole_agent(sizes)), prefix='whole'),
    'whole-step': lambda sizes: measure_steps(attempt_ids(whole_agent(sizes)), sizes, key='whole_step_ms'),
    'whole-create': _creation,
    'delegate': lambda sizes: measure_delegation(attempt_ids(whole_agent(sizes)), {'subagent': SUBAGENT}, sizes),
    'skills': _skills,
    'approve': _approval,
}
"""The cases with everything on, by name."""
