"""The other `pydantic-deep` with the equivalents of our full feature set, and everything else switched off if possible.

It has todos, files, commands, its general and its research subagent besides the declared one, skills, and approvals of
commands. Memory, plans, monitoring, web access, thinking and its context management, which are on by default, are
switched off.
"""

from __future__ import annotations

from collections.abc import Sequence

from everything import (
    answering,
    approve_all,
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
    Figures,
    Sizes,
    measure_creation,
    measure_discovery,
)
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel
from pydantic_deep.features.skills import SkillsDirectory

from pydantic_deep import DeepAgentDeps, create_deep_agent


def whole_agent(sizes: Sizes) -> Agent:
    """Return an agent with the equivalents of our full feature set."""
    return create_deep_agent(
        TestModel(),
        subagents=[
            {
                'name': SUBAGENT,
                'description': SUBAGENT_DESCRIPTION,
                'instructions': SUBAGENT_INSTRUCTIONS,
                'model': answering(),
            }
        ],
        skill_directories=[sizes.four_skills],
        interrupt_on={'execute': True},
        include_execute=True,
        include_plan=False,
        include_memory=False,
        include_monitoring=False,
        include_history_archive=False,
        context_manager=False,
        cost_tracking=False,
        web_search=False,
        web_fetch=False,
        thinking=False,
    )


def attempt_ids(agent: Agent) -> Run:
    """Return runs of an agent; its workspace is in memory."""

    async def run(model: Model, history: Sequence[ModelMessage]) -> object:
        return await agent.run(
            'Go on.', model=model, deps=DeepAgentDeps(), message_history=list(history), usage_limits=NO_LIMIT
        )

    return run


def _creation(sizes: Sizes) -> Figures:
    agents = []
    made = measure_creation(lambda: agents.append(whole_agent(sizes)), prefix='whole_')
    return {**made, **measure_first_run(attempt_ids(agents[0]))}


def _skills(sizes: Sizes) -> Figures:
    """Return the skill figures. It discovers skills when the agent is created, and lists all of them at each
    request."""
    discovery = measure_discovery(lambda: len(SkillsDirectory(path=sizes.many_skills).skills), sizes)
    without = create_deep_agent(TestModel())
    within = create_deep_agent(TestModel(), skill_directories=[sizes.many_skills])
    return {**discovery, **measure_skills_start(attempt_ids(without), attempt_ids(within), sizes)}


def _approval(sizes: Sizes) -> Figures:
    agent = create_deep_agent(TestModel(), interrupt_on={'write_file': True})
    return measure_approval(agent, DeepAgentDeps, approve_all, sizes)


CASES = {
    'whole': lambda sizes: measure_surface(attempt_ids(whole_agent(sizes)), prefix='whole'),
    'whole-step': lambda sizes: measure_steps(attempt_ids(whole_agent(sizes)), sizes, key='whole_step_ms'),
    'whole-create': _creation,
    'delegate': lambda sizes: measure_delegation(attempt_ids(whole_agent(sizes)), {'subagent_type': SUBAGENT}, sizes),
    'skills': _skills,
    'approve': _approval,
}
"""The cases with everything on, by name."""
