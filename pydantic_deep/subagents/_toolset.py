"""The tool `task`.

The function is created once for all agents. Each run passes its planner as deps.
"""

from dataclasses import replace
from functools import cache
from typing import cast

from pydantic_ai import FunctionToolset, RunContext, ToolDefinition, ToolReturn
from pydantic_ai.toolsets import ToolsetTool

from pydantic_deep._messages.deferred_metadata import DELEGATES
from pydantic_deep._toolsets.run_toolset import RunToolset
from pydantic_deep._toolsets.tool_schema import ToolSchema

from ._catalogue import GENERAL
from ._planner import TOOL_NAME, Planner

TOOLSET_ID = 'subagents'
"""The id of the toolset with `task`."""


async def task(ctx: RunContext[Planner], description: str, subagent: str = GENERAL) -> ToolReturn[object]:
    """Hand a large part of the work to a subagent. It sees only the description, you only its answer. Several calls run
    in parallel.
    """
    planner = ctx.deps
    return await planner.delegate(cast('RunContext[object]', replace(ctx, deps=planner.deps)), subagent, description)


@cache
def function_toolset() -> FunctionToolset[Planner]:
    """Return the toolset of `task`, without a choice if there is only the general-purpose subagent. Its deps are a
    `Planner`.
    """

    async def with_choice(ctx: RunContext[Planner], tool_def: ToolDefinition) -> ToolDefinition:
        properties: dict[str, object] = dict(tool_def.parameters_json_schema['properties'])
        if ctx.deps.subagents == {GENERAL: None}:
            del properties['subagent']
        schema = {**tool_def.parameters_json_schema, 'properties': properties, 'required': [*properties]}
        return replace(tool_def, parameters_json_schema=schema)

    toolset = FunctionToolset[Planner](id=TOOLSET_ID, schema_generator=ToolSchema)
    toolset.add_function(task, name=TOOL_NAME, metadata={'effect': 'external', DELEGATES: True}, prepare=with_choice)
    return toolset


class TaskToolset(RunToolset[Planner]):
    """The toolset of a run, which is empty if the run cannot have subagents."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        super().__init__(function_toolset(), self._planner_of)

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        """Return the tool if it is available."""
        await self._planner.check_names(ctx)
        return await super().get_tools(ctx) if self._planner.is_open(ctx) else {}

    def _planner_of(self, ctx: RunContext[object]) -> Planner:
        self._planner.set_deps(ctx.deps)
        return self._planner
