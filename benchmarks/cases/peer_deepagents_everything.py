"""LangChain's `deepagents` with the equivalents of our full feature set, as far as it has them; it comes without todos.

It reads skills through its backend, at the start of each thread. It has `execute` on a backend that runs commands, so
the surface is that of a local shell; everything else uses files in the graph's state.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

from deepagents import create_deep_agent
from deepagents.backends import BackendProtocol, CompositeBackend, FilesystemBackend, LocalShellBackend, StateBackend
from deepagents.middleware.skills import SkillsMiddleware
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from measure import (
    SUBAGENT,
    SUBAGENT_ANSWER,
    SUBAGENT_DESCRIPTION,
    SUBAGENT_INSTRUCTIONS,
    Figures,
    Sizes,
    measure_cpu_ms,
    measure_creation,
    measure_discovery,
    measure_more_ms,
    require,
    surface_figures,
    task_description,
)
from peer_langchain import Scripted, player, write_and_read

SKILL_STARTS = 2
"""Number of runs with many skills to compare; each of them reads all skills."""


def whole_graph(model: Scripted, sizes: Sizes, default: BackendProtocol | None = None):
    """Return a fully featured graph. It has no checkpointer, which only a pause would need."""
    skills = FilesystemBackend(sizes.four_skills, virtual_mode=True)
    return create_deep_agent(
        model,
        subagents=[
            {
                'name': SUBAGENT,
                'description': SUBAGENT_DESCRIPTION,
                'system_prompt': SUBAGENT_INSTRUCTIONS,
                'model': Scripted(answer=SUBAGENT_ANSWER),
            }
        ],
        skills=['/skills/'],
        backend=CompositeBackend(default=default or StateBackend(), routes={'/skills/': skills}),
        interrupt_on={'execute': True},
    )


def whole_player(sizes: Sizes, default: BackendProtocol | None = None) -> Callable[..., Awaitable[Scripted]]:
    """Return a function that runs a script once on a fully featured graph, each time in a new thread."""
    model = Scripted()
    return player(model, whole_graph(model, sizes, default))


def _surface(sizes: Sizes) -> Figures:
    # The working directory of a case is empty.
    model = asyncio.run(whole_player(sizes, LocalShellBackend(Path.cwd(), virtual_mode=True))([]))
    system = [str(message.text) for message in model.seen if isinstance(message, SystemMessage)]
    tools = [(tool['name'], tool['description'], tool['parameters']) for tool in model.bound]
    return surface_figures(tools, '\n'.join(system), prefix='whole')


def _steps(sizes: Sizes) -> Figures:
    play, calls = whole_player(sizes), write_and_read(sizes.steps)

    async def measure() -> float:
        require((await play(calls)).last_result, f'value {sizes.steps - 1}')
        return await measure_cpu_ms(sizes.repeats, lambda: play(calls))

    return {'whole_step_ms': asyncio.run(measure()) / sizes.steps}


def _creation(sizes: Sizes) -> Figures:
    model, graphs = Scripted(), []
    made = measure_creation(lambda: graphs.append(whole_graph(model, sizes)), prefix='whole_')
    play = player(model, graphs[0])
    return {**made, 'whole_first_run_ms': asyncio.run(measure_cpu_ms(1, lambda: play([])))}


def _delegation(sizes: Sizes) -> Figures:
    play = whole_player(sizes)
    calls = [
        ('task', {'subagent_type': SUBAGENT, 'description': task_description(n)}) for n in range(sizes.delegations)
    ]

    async def measure() -> float:
        require((await play(calls)).last_result, SUBAGENT_ANSWER)
        return await measure_cpu_ms(sizes.repeats, lambda: play(calls))

    return {'delegate_ms': asyncio.run(measure()) / sizes.delegations}


def _skills(sizes: Sizes) -> Figures:
    backend = FilesystemBackend(sizes.many_skills, virtual_mode=True)

    def discover() -> int:
        update = SkillsMiddleware(backend=backend, sources=['/']).before_agent({}, None, {})
        return len(update['skills_metadata'])

    without, within = Scripted(), Scripted()
    play_without = player(without, create_deep_agent(without, backend=backend))
    play_within = player(within, create_deep_agent(within, backend=backend, skills=['/']))
    more = measure_more_ms(min(sizes.starts, SKILL_STARTS), lambda: play_without([]), lambda: play_within([]))
    return {**measure_discovery(discover, sizes), 'skills_run_ms': asyncio.run(more)}


def _approval(sizes: Sizes) -> Figures:
    """Return the approval figures. Its checkpointer stores the paused state as bytes, in memory."""
    model = Scripted()
    graph = create_deep_agent(model, interrupt_on={'write_file': True}, checkpointer=InMemorySaver())
    threads = itertools.count()

    async def once() -> str:
        model.play(write_and_read(1))
        config = {'recursion_limit': 100_000, 'configurable': {'thread_id': str(next(threads))}}
        paused = await graph.ainvoke({'messages': [HumanMessage('Go on.')]}, config)
        if not paused.get('__interrupt__') or model.asked != 1:
            raise RuntimeError('The run did not pause.')
        await graph.ainvoke(Command(resume={'decisions': [{'type': 'approve'}]}), config)
        return model.last_result

    async def repeat() -> None:
        for _ in range(sizes.approvals):
            await once()

    async def measure() -> float:
        require(await once(), '0.txt')
        return await measure_cpu_ms(sizes.repeats, repeat)

    return {'approve_ms': asyncio.run(measure()) / sizes.approvals}


CASES = {
    'whole': _surface,
    'whole-step': _steps,
    'whole-create': _creation,
    'delegate': _delegation,
    'skills': _skills,
    'approve': _approval,
}
"""The cases with everything on, by name."""
