"""What the agent plugs in: the todo list as one capability, for any pydantic-ai agent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pydantic_ai import AgentToolset, RunContext
from pydantic_ai.capabilities import AbstractCapability

from ._toolset import build_toolset, last_written
from ._types import HasTodos, Todo

INSTRUCTIONS = 'For work of three or more steps, plan with write_todos; keep one todo in_progress and update as you go.'


@dataclass(kw_only=True)
class Todos(AbstractCapability[object]):
    """A plan that the model keeps: one list of todos, replaced by `write_todos`, shown when it changes.

    The list is `deps.todos` where deps have that attribute, and lives as long as deps. Else it is read back from
    the message history, and lives as long as the conversation: `Agent(model, capabilities=[Todos()])`.
    A change is appended to the conversation, so the prefix that a provider has cached stays as it is.
    """

    id: str | None = 'todos'
    instructions: str = INSTRUCTIONS
    """What the model is told about planning."""
    _own: list[Todo] | None = field(default=None, init=False, repr=False)

    async def for_run(self, ctx: RunContext[object]) -> Todos:
        """Return this run's instance, with a list of its own where deps have none."""
        if isinstance(ctx.deps, HasTodos):
            return self
        run = replace(self)
        run._own = last_written(ctx.messages)
        return run

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset with `write_todos`."""
        return build_toolset(self.instructions, self._own)
