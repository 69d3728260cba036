"""The names of the tools of subagents, without running any of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability

from pydantic_deep._neighbours import NamesTools

from ._deps import clone_deps


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
            names |= (await toolset.get_tools(seen)).keys()
        for capability in capabilities:
            if isinstance(capability, NamesTools):
                names |= await capability.hidden_tool_names(seen)
    return frozenset(names)
