"""Function tools that are created once for all agents, and called with the state of one run.

Creating a toolset of functions builds their JSON schemas, which takes longer than creating an agent should. So the
functions of a capability are one toolset per process, whose `ctx.deps` is the state of the capability, supplied by a
`RunToolset`. It is a leaf and not a wrapper, because each layer of toolsets adds to the cost of every step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy
from dataclasses import replace
from typing import Any, Generic, TypeVar, cast

from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

StateT = TypeVar('StateT')


class RunToolset(AbstractToolset[object], Generic[StateT]):
    """The functions of a capability during one run.

    Args:
        functions: The functions; this toolset has the same `id`.
        state_of: Returns the state of the run. It is called at each step and each call, because the deps of a toolset
            may differ from those of the run.
    """

    def __init__(self, functions: FunctionToolset[StateT], state_of: Callable[[RunContext[object]], StateT]) -> None:
        self._functions = functions
        self._state_of = state_of
        self._tools: tuple[StateT, dict[str, ToolsetTool[object]]] | None = None

    @property
    def id(self) -> str | None:
        """The id of the toolset in an agent."""
        return self._functions.id

    @property
    def tools(self) -> Collection[str]:
        """The names of all functions, also of those that a run does not have."""
        return self._functions.tools

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        """Return the tools.

        They are cached while the state is the same object: defining them again takes longer than everything else that a
        capability does in a step.
        """
        state = self._state_of(ctx)
        if self._tools is None or self._tools[0] is not state:
            tools = await self._functions.get_tools(_with_state(ctx, state))
            strict = _strictness(ctx)
            tool_by_name = {name: self._signed(tool, strict) for name, tool in tools.items()}
            self._tools = state, cast('dict[str, ToolsetTool[object]]', tool_by_name)
        return dict(self._tools[1])

    def _signed(self, tool: ToolsetTool[StateT], strict: bool | None) -> ToolsetTool[StateT]:
        """Return a tool with its strictness, and with the id of its toolset. An agent adds that too, but not through a
        wrapper that renames tools.
        """
        return replace(tool, tool_def=replace(tool.tool_def, toolset_id=self.id, strict=strict))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> Any:
        """Call a function with the state of the run. A retry beyond the limit becomes a plain failure."""
        function = cast('ToolsetTool[StateT]', tool)
        try:
            return await self._functions.call_tool(name, tool_args, _with_state(ctx, self._state_of(ctx)), function)
        except ModelRetry as error:
            if ctx.retry < ctx.max_retries:
                raise
            raise ToolFailed(error.message) from error


def _strictness(ctx: RunContext[object]) -> bool | None:
    """Return whether the model should enforce the schemas of tools; `None` leaves it to pydantic-ai.

    For OpenAI, pydantic-ai would enforce the schemas of tools without optional parameters, and add
    `additionalProperties` to each object of all tools, which costs 6 to 12 tokens for each tool in each request. Gemini
    enforces the schemas of all tools or of none, and needs no addition.
    """
    try:
        profile = cast('Model[Any]', ctx.model).profile
    except NotImplementedError:  # a `FallbackModel` has the profiles of its models, which may differ
        return None
    return None if profile.get('google_supports_strict_tool_definition') else False


def _with_state(ctx: RunContext[object], state: StateT) -> RunContext[StateT]:
    """Return the context with the state as deps. `copy` takes a sixth of the time of `replace`, which matters at every
    call.
    """
    if type(ctx) is not RunContext:
        # A subclass, such as Temporal's, may have to be constructed.
        return cast('RunContext[StateT]', replace(ctx, deps=state))
    copied = copy(ctx)
    copied.deps = state
    return cast('RunContext[StateT]', copied)
