"""The floor of a fully featured agent: ten plain tools of the same names on a bare pydantic-ai agent.

Most of them do nothing, since the cases only write, read and delegate. The measurement shows the cost of ten tools, a
child agent and a gated call in pydantic-ai itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

from everything import answering
from loop import NO_LIMIT, Run
from measure import SUBAGENT_INSTRUCTIONS
from pydantic_ai import Agent, DeferredToolRequests, RunContext, Tool
from pydantic_ai.capabilities import Capability
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

INSTRUCTIONS = {
    'list': 'Plan with write_todos.',
    'files': 'Paths start at the working directory. Read before you write.',
    'skills': 'Skills are instructions for a kind of task. When one fits, load_skill it first.',
    'subagents': 'Subagents for `task`: reviewer.',
}
"""Descriptions of the groups of tools, for the model."""


class Tools:
    """The ten tools of the agent, by group."""

    def __init__(self, gated: str) -> None:
        self.files: dict[str, str] = {}
        self.gated = gated
        self.child = Agent(answering(), instructions=SUBAGENT_INSTRUCTIONS)

    def groups(self) -> dict[str, list[Tool[None]]]:
        """Return the tools. The gated tool requires approval with pydantic-ai's own mechanism."""
        files = [self.ls, self.read_file, self.write_file, self.edit_file, self.glob, self.grep, self.execute]
        functions: dict[str, list[Any]] = {
            'list': [self.write_todos],
            'files': files,
            'skills': [self.load_skill],
            'subagents': [self.task],
        }
        return {
            group: [Tool(function, requires_approval=function.__name__ == self.gated) for function in members]
            for group, members in functions.items()
        }

    async def write_todos(self, todos: list[str]) -> str:
        """Replace the todo list."""
        return f'{len(todos)} todos'

    async def ls(self, path: str = '.') -> str:
        """List a directory."""
        return '\n'.join(self.files)

    async def read_file(self, path: str, offset: int = 1, limit: int = 2000) -> str:
        """Read a file."""
        return self.files[path]

    async def write_file(self, path: str, content: str) -> str:
        """Create or replace a file."""
        self.files[path] = content
        return f'Wrote {path}.'

    async def edit_file(self, path: str, old_string: str, new_string: str) -> str:
        """Replace old_string by new_string."""
        self.files[path] = self.files[path].replace(old_string, new_string)
        return f'Edited {path}.'

    async def glob(self, pattern: str, path: str = '.') -> str:
        """Find files by name."""
        return ''

    async def grep(self, pattern: str, path: str = '.') -> str:
        """Find files by content."""
        return ''

    async def execute(self, command: str) -> str:
        """Run a command."""
        return ''

    async def load_skill(self, name: str) -> str:
        """Read a skill."""
        return ''

    async def task(self, ctx: RunContext[None], description: str) -> str:
        """Hand work to a subagent."""
        return (await self.child.run(description, usage=ctx.usage, usage_limits=NO_LIMIT)).output


def whole_agent(gated: str = 'execute', *, in_capabilities: bool = False) -> Agent[None, str | DeferredToolRequests]:
    """Return an agent with the ten tools.

    Args:
        gated: The tool that requires approval.
        in_capabilities: Whether each group comes from its own capability.
    """
    groups = Tools(gated).groups()
    if in_capabilities:
        capabilities = [
            Capability[None](id=group, tools=tools, instructions=INSTRUCTIONS[group]) for group, tools in groups.items()
        ]
        return Agent(output_type=[str, DeferredToolRequests], deps_type=NoneType, capabilities=capabilities)
    return Agent(
        output_type=[str, DeferredToolRequests],
        deps_type=NoneType,
        instructions='\n'.join(INSTRUCTIONS.values()),
        tools=[tool for group in groups.values() for tool in group],
    )


def whole_runs(agent: Agent[None, str | DeferredToolRequests] | None = None) -> Run:
    """Return runs of a fully featured agent."""
    used = agent or whole_agent()

    async def run(model: Model, history: Sequence[ModelMessage]) -> object:
        return await used.run('Go on.', model=model, message_history=history, usage_limits=NO_LIMIT)

    return run
