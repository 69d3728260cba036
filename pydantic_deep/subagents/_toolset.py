"""What the model may call: `task`.

The function is made once for all agents; a run hands it its own room in the place of deps.
"""

from dataclasses import replace
from functools import cache
from typing import cast

from pydantic_ai import FunctionToolset, RunContext, ToolReturn
from pydantic_ai.toolsets import ToolsetTool

from pydantic_deep._messages.deferred_metadata import DELEGATES
from pydantic_deep._toolsets.run_toolset import RunToolset

from ._planner import TOOL_NAME, Planner

TOOLSET_ID = 'subagents'
"""The id of the toolset with `task`."""


async def task(ctx: RunContext[Planner], subagent: str, description: str) -> ToolReturn[object]:
    """Hand work to a subagent. It sees only the description, and you only its answer. Several calls run in parallel."""
    room = ctx.deps
    return await room.delegate(cast('RunContext[object]', replace(ctx, deps=room.deps)), subagent, description)


@cache
def function_toolset() -> FunctionToolset[Planner]:
    """Return the toolset of the function above, whose deps are a `Planner`."""
    toolset = FunctionToolset[Planner](id=TOOLSET_ID)
    toolset.add_function(task, name=TOOL_NAME, metadata={'effect': 'external', DELEGATES: True})
    return toolset


class TaskToolset(RunToolset[Planner]):
    """The tool, where a run may have subagents."""

    def __init__(self, room: Planner) -> None:
        self._room = room
        super().__init__(function_toolset(), self._seen)

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        """Return the tool, or nothing."""
        await self._room.check_names(ctx)
        return await super().get_tools(ctx) if self._room.is_open(ctx) else {}

    def _seen(self, ctx: RunContext[object]) -> Planner:
        self._room.see(ctx.deps)
        return self._room
