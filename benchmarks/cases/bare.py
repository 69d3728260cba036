"""The floor: a bare pydantic-ai agent with the plainest tools that do the same.

It has a sentence of instructions, as every agent in earnest has: instructions alone make pydantic-ai look through the
history at each request, which is no cost of what a framework puts on top. Its tools are coroutines as ours are:
pydantic-ai hands plain functions to a thread.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from types import NoneType

from loop import NO_LIMIT, Run, measure_history, measure_search, measure_steps
from measure import Figures, Sizes, main, measure_creation, measure_memory
from pydantic_ai import Agent, FunctionToolset, InstructionPart, RunContext
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel

INSTRUCTIONS = 'Paths start at the working directory. Read before you write.'


def agent_on_a_dict(*, is_stating_a_list: bool = False) -> Run:
    """Return runs of an agent whose two tools read and write a dict.

    Args:
        is_stating_a_list: Whether it also states an empty todo list, in the way that leaves the prefix as it is.
    """
    files: dict[str, str] = {}
    toolsets = [_list_toolset()] if is_stating_a_list else []
    agent = Agent(instructions=INSTRUCTIONS, toolsets=toolsets, deps_type=NoneType)

    @agent.tool_plain
    async def write_file(path: str, content: str) -> str:
        """Create or replace a file."""
        files[path] = content
        return f'Wrote {path}.'

    @agent.tool_plain
    async def read_file(path: str) -> str:
        """Read a file."""
        return files[path]

    return _runs(agent)


def agent_on_a_directory(root: str) -> Run:
    """Return runs of an agent whose two tools search a directory: no confinement, no limits, no report of failures."""
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


def _list_toolset() -> FunctionToolset[None]:
    async def state(ctx: RunContext[None]) -> InstructionPart:
        return InstructionPart('Todos:\nnone', name='list', on_change='append')

    return FunctionToolset(id='todos', instructions=state)


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


if __name__ == '__main__':
    main(
        {
            'create': lambda sizes: measure_creation(lambda: Agent(TestModel())),
            'step': lambda sizes: measure_steps(agent_on_a_dict(), sizes),
            'history': lambda sizes: measure_history(agent_on_a_dict(), sizes),
            'search': lambda sizes: measure_search(agent_on_a_directory(sizes.tree)),
            'memory': _memory,
        }
    )
