"""The floor: a bare pydantic-ai agent with the simplest equivalent tools.

It has one sentence of instructions, like every real agent: instructions alone make pydantic-ai scan the history at each
request, which is not a cost of a framework on top. Its tools are coroutines like ours, because pydantic-ai runs plain
functions in a thread.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import NoneType

from bare_everything import whole_agent, whole_runs
from everything import approve_all, measure_approval, measure_delegation, measure_first_run
from loop import NO_LIMIT, Run, measure_history, measure_search, measure_steps
from measure import Figures, Sizes, main, measure_creation, measure_memory
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.capabilities import Capability
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel

INSTRUCTIONS = 'Paths start at the working directory. Read before you write.'


def agent_on_a_dict(*, in_capabilities: bool = False) -> Agent[None, str]:
    """Return an agent with two tools that read and write a dict.

    Args:
        in_capabilities: Whether the tools come from a capability, next to another one with a tool for a list.
    """
    files: dict[str, str] = {}

    async def write_file(path: str, content: str) -> str:
        """Create or replace a file."""
        files[path] = content
        return f'Wrote {path}.'

    async def read_file(path: str) -> str:
        """Read a file."""
        return files[path]

    async def write_list(items: list[str]) -> str:
        """Replace the list."""
        return f'{len(items)} items'

    if not in_capabilities:
        return Agent(instructions=INSTRUCTIONS, tools=[write_file, read_file], deps_type=NoneType)
    capabilities = [
        Capability[None](id='files', tools=[write_file, read_file]),
        Capability[None](id='list', tools=[write_list]),
    ]
    return Agent(instructions=INSTRUCTIONS, capabilities=capabilities, deps_type=NoneType)


def runs_on_a_dict(*, in_capabilities: bool = False) -> Run:
    """Return runs of an agent with files in a dict."""
    return _runs(agent_on_a_dict(in_capabilities=in_capabilities))


def agent_on_a_directory(root: str) -> Run:
    """Return runs of an agent with two tools that search a directory, without confinement, limits or error reports."""
    agent = Agent(instructions=INSTRUCTIONS)

    @agent.tool_plain
    async def glob(pattern: str) -> str:
        """Find files by name."""
        name = pattern.rpartition('/')[2]
        return '\n'.join(path for path in _files_under(root) if fnmatch(path, f'*/{name}'))

    @agent.tool_plain
    async def grep(pattern: str) -> str:
        """Find files by content."""
        search = re.compile(pattern.encode()).search
        return '\n'.join(path for path in _files_under(root) if search(Path(path).read_bytes()))

    return _runs(agent)


def _runs(agent: Agent[None, str]) -> Run:
    async def run(model: Model, history: Sequence[ModelMessage]) -> object:
        return await agent.run('Go on.', model=model, message_history=history, usage_limits=NO_LIMIT)

    return run


def _files_under(root: str) -> list[str]:
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)


def _memory(sizes: Sizes) -> Figures:
    files: dict[str, bytes] = {}

    async def write(path: str, data: bytes) -> None:
        files[path] = data

    return asyncio.run(measure_memory(sizes, write))


def _stored_steps(sizes: Sizes) -> Figures:
    """Return the cost of a step that is not persisted, for both figures that it is compared with."""
    figures = measure_steps(runs_on_a_dict(), sizes, key='stored_step_ms')
    return {**figures, 'stored_bare_step_ms': figures['stored_step_ms']}


def _creation(sizes: Sizes) -> Figures:
    agents: list[Agent[None, str | DeferredToolRequests]] = []
    made = measure_creation(lambda: agents.append(whole_agent()), prefix='whole_')
    return {**made, **measure_first_run(whole_runs(agents[0]))}


if __name__ == '__main__':
    main(
        {
            'create': lambda sizes: measure_creation(lambda: Agent(TestModel())),
            'step': lambda sizes: measure_steps(runs_on_a_dict(), sizes),
            'store-step': _stored_steps,
            'history': lambda sizes: measure_history(runs_on_a_dict(), sizes),
            'search': lambda sizes: measure_search(agent_on_a_directory(sizes.tree)),
            'memory': _memory,
            'whole-step': lambda sizes: measure_steps(whole_runs(), sizes, key='whole_step_ms'),
            'whole-create': _creation,
            'delegate': lambda sizes: measure_delegation(whole_runs(), {}, sizes),
            'approve': lambda sizes: measure_approval(whole_agent('write_file'), lambda: None, approve_all, sizes),
        }
    )
