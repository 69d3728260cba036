"""Toolsets that answer at once, asked one after another.

At every step pydantic-ai asks the toolsets of a run for their tools, for their instructions and whether they change,
each time in tasks side by side. For a server that is right. Where there is nothing to wait for, tasks are most of what
a toolset costs at a step. Toolsets that may wait, and all that is not known here, stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from pydantic_ai import FunctionToolset, InstructionPart, RunContext
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    PreparedToolset,
    ToolsetTool,
    WrapperToolset,
)

from ._run_toolset import RunToolset

_Toolset = AbstractToolset[object]

_OF_AGENT = '<agent>'
"""The id that pydantic-ai keeps for the toolset of an agent's own functions."""


def asked_in_turn(toolset: _Toolset) -> _Toolset:
    """Return the toolset of a run with what answers at once grouped: the same tools in the same order."""
    if type(toolset) is PreparedToolset:
        return replace(toolset, wrapped=asked_in_turn(toolset.wrapped))
    if type(toolset) is CombinedToolset:
        return replace(toolset, toolsets=_grouped(toolset.toolsets))
    return toolset


def _grouped(toolsets: Sequence[_Toolset]) -> list[_Toolset]:
    """Return the toolsets, neighbours that answer at once as one: with a single toolset to ask there is no task."""
    grouped: list[_Toolset] = []
    for at_once, group in groupby((part for each in toolsets for part in _parts(each)), _answers_at_once):
        members = list(group)
        grouped.extend([InTurn(members)] if at_once and len(members) > 1 else members)
    return grouped


def _parts(toolset: _Toolset) -> Sequence[_Toolset]:
    """Return the members of a plain combination of what answers at once; anything else as one part."""
    if type(toolset) is CombinedToolset and all(map(_answers_at_once, toolset.toolsets)):
        return toolset.toolsets
    return [asked_in_turn(toolset)]


def _answers_at_once(toolset: _Toolset) -> bool:
    """Return whether it is a room's toolset, with the mark of its capability or without, or the agent's functions."""
    if isinstance(toolset, FunctionToolset):
        return toolset.id == _OF_AGENT
    return isinstance(toolset.wrapped if isinstance(toolset, WrapperToolset) else toolset, RunToolset)


@dataclass
class InTurn(CombinedToolset[object]):
    """Combines toolsets without tasks.

    It stands in a `CombinedToolset`, which marks the tools and sees conflicts with those of other toolsets.
    """

    _source_by_name: dict[str, _Toolset] = field(default_factory=dict[str, _Toolset], init=False, repr=False)

    async def for_run(self, ctx: RunContext[object]) -> _Toolset:
        """Return an instance of the run's own."""
        return replace(self, toolsets=[await each.for_run(ctx) for each in self.toolsets])

    async def for_run_step(self, ctx: RunContext[object]) -> _Toolset:
        """Return the same instance, unless a toolset has become another one."""
        toolsets = [await each.for_run_step(ctx) for each in self.toolsets]
        if all(new is old for new, old in zip(toolsets, self.toolsets, strict=True)):
            return self
        return replace(self, toolsets=toolsets)

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        """Return the tools of all as they are.

        Raises:
            UserError: Two toolsets have a tool of one name, in the words of pydantic-ai.
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
        """Call the tool in the toolset that it came from."""
        source = self._source_by_name.get(name) or super()
        return await source.call_tool(name, tool_args, ctx, tool)

    async def get_instructions(
        self, ctx: RunContext[object]
    ) -> str | InstructionPart | Sequence[str | InstructionPart] | None:
        """Return nothing, as its toolsets do; should one say something, pydantic-ai collects it with its source."""
        for toolset in self.toolsets:
            if await toolset.get_instructions(ctx):
                return await super().get_instructions(ctx)
        return None
