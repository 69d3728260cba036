"""The agents of `serve` and `worker`, with the MCP servers of their options."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

from pydantic_deep._agent_imports import AnyAgent
from pydantic_deep.mcp import McpServers
from pydantic_deep.versions import VersionedAgent

from ._own_agent import OwnAgent


@asynccontextmanager
async def with_servers(
    agents: Mapping[str, AnyAgent], servers: McpServers | None
) -> AsyncGenerator[Mapping[str, AnyAgent]]:
    """Yield agents that have the tools of MCP servers in addition to their own. The servers run until the end.

    Args:
        agents: The agents by name.
        servers: The servers, which all agents share; `None` for none.
    """
    if servers is None:
        yield agents
        return
    async with cast('AbstractAsyncContextManager[object]', servers.get_toolset()):
        yield {name: _with(agent, servers) for name, agent in agents.items()}


def _with(agent: AnyAgent, servers: McpServers) -> AnyAgent:
    if isinstance(agent, VersionedAgent):
        return agent.with_agent(OwnAgent(agent.agent, model=None, capabilities=[servers]))
    return OwnAgent(agent, model=None, capabilities=[servers])
