"""Functions made once for all agents, called on the state of one run.

Making a toolset of functions builds their JSON schemas, which takes longer than making an agent may. So the functions
of a room are a toolset that is made once per process, their `ctx.deps` is the room's own state, and a `RunToolset`
hands it to them. It is a leaf of its own rather than a wrapper, because each layer of toolsets costs every step.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

StateT = TypeVar('StateT')


class RunToolset(AbstractToolset[object], Generic[StateT]):
    """The functions of a room during one run.

    Args:
        functions: What can be called; its `id` is that of this toolset.
        state_of: Finds the state of the run. It is asked at each step and each call: the deps that a toolset sees may
            be others than those that the run was given.
    """

    def __init__(self, functions: FunctionToolset[StateT], state_of: Callable[[RunContext[object]], StateT]) -> None:
        self._functions = functions
        self._state_of = state_of
        self._tools: tuple[StateT, dict[str, ToolsetTool[object]]] | None = None

    @property
    def id(self) -> str | None:
        """The name of the toolset in an agent."""
        return self._functions.id

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        """Return the tools.

        They are the same at every step unless the state is another object, and defining them anew takes longer than
        all else that a room does at a step.
        """
        state = self._state_of(ctx)
        if self._tools is None or self._tools[0] is not state:
            tools = await self._functions.get_tools(_with_state(ctx, state))
            named = {name: self._signed(tool) for name, tool in tools.items()}
            self._tools = state, cast('dict[str, ToolsetTool[object]]', named)
        return dict(self._tools[1])

    def _signed(self, tool: ToolsetTool[StateT]) -> ToolsetTool[StateT]:
        """Return a tool that says whose it is; an agent adds that too, but not through a wrapper that renames."""
        return replace(tool, tool_def=replace(tool.tool_def, toolset_id=self.id))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> Any:
        """Call a function on the state of the run; when its retries are used up, what it refuses is a plain failure."""
        function = cast('ToolsetTool[StateT]', tool)
        try:
            return await self._functions.call_tool(name, tool_args, _with_state(ctx, self._state_of(ctx)), function)
        except ModelRetry as error:
            if ctx.retry < ctx.max_retries:
                raise
            raise ToolFailed(error.message) from error


def _with_state(ctx: RunContext[object], state: StateT) -> RunContext[StateT]:
    """Return the context with the state for deps. A copy takes a sixth of the time of `replace`, at every call."""
    if type(ctx) is not RunContext:
        return cast('RunContext[StateT]', replace(ctx, deps=state))  # a subclass may have to be built, as Temporal's
    seen = copy(ctx)
    seen.deps = state
    return cast('RunContext[StateT]', seen)
