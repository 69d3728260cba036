"""Toolsets that never block, queried sequentially instead of in parallel tasks.

At every step pydantic-ai queries the toolsets of a run for their tools, instructions and next state, each time in
parallel tasks. This is right for a remote server; for a toolset that never blocks, the tasks are most of its cost per
step. Toolsets that may block, and all unknown ones, are left unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from pydantic_ai import FunctionToolset, InstructionPart, RunContext
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, PreparedToolset, ToolsetTool, WrapperToolset

from .run_toolset import RunToolset

_Toolset = AbstractToolset[object]

_OF_AGENT = '<agent>'
"""The id that pydantic-ai reserves for the toolset of an agent's own functions."""


def with_sequential_toolsets(toolset: _Toolset) -> _Toolset:
    """Return the toolset of a run with adjacent non-blocking toolsets combined: the same tools in the same order."""
    if type(toolset) is PreparedToolset:
        return replace(toolset, wrapped=with_sequential_toolsets(toolset.wrapped))
    if type(toolset) is CombinedToolset:
        return replace(toolset, toolsets=_grouped(toolset.toolsets))
    return toolset


def _grouped(toolsets: Sequence[_Toolset]) -> list[_Toolset]:
    """Return the toolsets, with adjacent non-blocking ones combined: a single toolset needs no task."""
    grouped: list[_Toolset] = []
    for is_immediate, group in groupby((part for toolset in toolsets for part in _parts(toolset)), _is_immediate):
        members = list(group)
        grouped.extend([SequentialToolset(members)] if is_immediate and len(members) > 1 else members)
    return grouped


def _parts(toolset: _Toolset) -> Sequence[_Toolset]:
    """Return the members of a plain combination of non-blocking toolsets; anything else as a single part."""
    if type(toolset) is CombinedToolset and all(map(_is_immediate, toolset.toolsets)):
        return toolset.toolsets
    return [with_sequential_toolsets(toolset)]


def _is_immediate(toolset: _Toolset) -> bool:
    """Return whether it is a toolset of one of our capabilities, wrapped or not, or of the agent's own functions."""
    if isinstance(toolset, FunctionToolset):
        return toolset.id == _OF_AGENT
    return isinstance(toolset.wrapped if isinstance(toolset, WrapperToolset) else toolset, RunToolset)


@dataclass
class SequentialToolset(CombinedToolset[object]):
    """Combines toolsets without starting tasks.

    It is a member of a `CombinedToolset`, which labels the tools and detects conflicts with other toolsets.
    """

    _source_by_name: dict[str, _Toolset] = field(default_factory=dict[str, _Toolset], init=False, repr=False)

    async def for_run(self, ctx: RunContext[object]) -> _Toolset:
        """Return an instance for the run."""
        return replace(self, toolsets=[await toolset.for_run(ctx) for toolset in self.toolsets])

    async def for_run_step(self, ctx: RunContext[object]) -> _Toolset:
        """Return this instance, or a new one if a toolset was replaced."""
        toolsets = [await toolset.for_run_step(ctx) for toolset in self.toolsets]
        if all(updated is toolset for updated, toolset in zip(toolsets, self.toolsets, strict=True)):
            return self
        return replace(self, toolsets=toolsets)

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        """Return the tools of all toolsets.

        Raises:
            UserError: Two toolsets have a tool of the same name. This is pydantic-ai's own error.
        """
        tools: dict[str, ToolsetTool[object]] = {}
        sources: dict[str, _Toolset] = {}
        for toolset in self.toolsets:
            own = await toolset.get_tools(ctx)
            if not tools.keys().isdisjoint(own):
                self._source_by_name = {}
                return await super().get_tools(ctx)
            tools.update(own)
            sources.update(dict.fromkeys(own, toolset))
        self._source_by_name = sources
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> Any:
        """Call the tool in the toolset that provides it."""
        source = self._source_by_name.get(name) or super()
        return await source.call_tool(name, tool_args, ctx, tool)

    async def get_instructions(
        self, ctx: RunContext[object]
    ) -> str | InstructionPart | Sequence[str | InstructionPart] | None:
        """Return nothing if no toolset has instructions; otherwise pydantic-ai collects them with their sources."""
        for toolset in self.toolsets:
            if await toolset.get_instructions(ctx):
                return await super().get_instructions(ctx)
        return None
