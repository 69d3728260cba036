"""Determine the tool names of subagents without running them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext, UserError
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.toolsets import AbstractToolset

from pydantic_deep.extensions import SupportsHiddenTools

from ._deps import clone_deps
from ._types import Subagent


async def tool_names(ctx: RunContext[object], agents: Iterable[AbstractAgent[Any, Any]]) -> frozenset[str]:
    """Return the names of all tools of agents and of their subagents.

    This lists the tools of their toolsets, so it connects to the MCP servers of subagents.
    """
    names: set[str] = set()
    for agent in agents:
        capabilities: list[AbstractCapability[Any]] = []
        agent.root_capability.apply(capabilities.append)
        registered = {capability.id or f'<{position}>': capability for position, capability in enumerate(capabilities)}
        # pydantic-ai looks up the owner of each toolset among the capabilities. The deps are those of a child, so that
        # nested agents are not cached as if they were the run's own.
        seen = replace(ctx, agent=None, deps=clone_deps(ctx.deps, max_depth=1), capabilities=registered)
        for toolset in agent.toolsets:
            names |= await _names_of(toolset, seen)
        for capability in capabilities:
            if isinstance(capability, SupportsHiddenTools):
                names |= await capability.hidden_tool_names(seen)
    return frozenset(names)


async def check_gated_names(
    ctx: RunContext[object], subagents: Iterable[Subagent], agent_of: Callable[[Subagent], AbstractAgent[Any, Any]]
) -> None:
    """Raise if `interrupt_on` of a subagent names an unknown tool, at any depth.

    Raises:
        UserError: No tool of the subagent has one of the names.
    """
    for subagent in subagents:
        if subagent.interrupt_on:
            known = await tool_names(ctx, [agent_of(subagent)])
            unknown = sorted(subagent.interrupt_on.keys() - known)
            if unknown:
                raise UserError(
                    f'`interrupt_on` of the subagent {subagent.name!r} names {", ".join(map(repr, unknown))}, but no tool of '
                    f'it has this name. Its tools: {", ".join(sorted(known))}.'
                )
        await check_gated_names(ctx, subagent.subagents, agent_of)


async def _names_of(toolset: AbstractToolset[Any], ctx: RunContext[object]) -> set[str]:
    """Return the tools of a toolset at the start of a run, including one that is created per run."""
    running = await toolset.for_run(ctx)
    async with running:
        return set(await (await running.for_run_step(ctx)).get_tools(ctx))
