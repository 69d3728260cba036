"""The agents of `serve` and `worker`, with the MCP servers and capabilities of the configuration."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import cast

from pydantic_ai.capabilities import AbstractCapability

from pydantic_deep._agent_imports import AnyAgent
from pydantic_deep.mcp import McpServers
from pydantic_deep.versions import VersionedAgent

from ._own_agent import OwnAgent


@asynccontextmanager
async def with_configuration(
    agents: Mapping[str, AnyAgent], servers: McpServers | None, capabilities: Sequence[AbstractCapability[object]] = ()
) -> AsyncGenerator[Mapping[str, AnyAgent]]:
    """Yield agents that have the configured tools and limits in addition to their own. The servers run until the end.

    Args:
        agents: The agents by name.
        servers: The MCP servers, which all agents share; `None` for none.
        capabilities: Other capabilities for all agents.
    """
    added = [*capabilities, *([] if servers is None else [servers])]
    async with AsyncExitStack() as stack:
        if servers is not None:
            await stack.enter_async_context(cast('AbstractAsyncContextManager[object]', servers.get_toolset()))
        yield {name: _with(agent, added) for name, agent in agents.items()} if added else agents


def _with(agent: AnyAgent, capabilities: Sequence[AbstractCapability[object]]) -> AnyAgent:
    if isinstance(agent, VersionedAgent):
        return agent.with_agent(OwnAgent(agent.agent, model=None, capabilities=capabilities))
    return OwnAgent(agent, model=None, capabilities=capabilities)
