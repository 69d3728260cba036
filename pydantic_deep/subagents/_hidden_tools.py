"""The names of the tools of subagents, without running any of them."""

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
    """Return the names of all tools of agents, and of those that they name themselves.

    Toolsets are asked for their tools, so an MCP server of a subagent is reached.
    """
    names: set[str] = set()
    for agent in agents:
        capabilities: list[AbstractCapability[Any]] = []
        agent.root_capability.apply(capabilities.append)
        registered = {each.id or f'<{position}>': each for position, each in enumerate(capabilities)}
        # pydantic-ai finds the owner of each toolset among the capabilities. The deps are those of a child, so that
        # agents from further below are not kept as if they were the run's own.
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
    """Refuse an `interrupt_on` of a subagent that names what none of its tools is called, at any depth.

    Raises:
        UserError: There is such a name.
    """
    for each in subagents:
        if each.interrupt_on:
            known = await tool_names(ctx, [agent_of(each)])
            unknown = sorted(each.interrupt_on.keys() - known)
            if unknown:
                raise UserError(
                    f'`interrupt_on` of the subagent {each.name!r} names {", ".join(map(repr, unknown))}, and no tool of '
                    f'it is called so. Its tools: {", ".join(sorted(known))}.'
                )
        await check_gated_names(ctx, each.subagents, agent_of)


async def _names_of(toolset: AbstractToolset[Any], ctx: RunContext[object]) -> set[str]:
    """Return the tools that a toolset has where a run begins, one that is made for each run included."""
    running = await toolset.for_run(ctx)
    async with running:
        return set(await (await running.for_run_step(ctx)).get_tools(ctx))
