"""`started_agent`: an agent while it is used, whose start says what takes long and what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

from pydantic_ai import UserError
from pydantic_ai.capabilities import AbstractCapability

from pydantic_deep.audit import redact
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.mcp import McpServers

from ._runtime import AgentRuntime

PATIENCE_SECONDS: Final = 1.0
"""How long the start of an agent may take without a notice. That of a server on this machine is usually faster."""


@asynccontextmanager
async def started_agent(runtime: AgentRuntime, notify: Callable[[str], None]) -> AsyncGenerator[None]:
    """Start the agent of a runtime, with its MCP servers, and stop it at the end.

    Args:
        runtime: The agent and its MCP servers.
        notify: Tells the user a sentence: what takes long, and which servers and skills are missing.
    """
    servers = mcp_servers_of(runtime)
    names = [escape_invisible(name) for each in servers for name in each.servers]
    awaited = f'{"MCP server" if len(names) == 1 else "MCP servers"} {", ".join(names)}' if names else 'agent'
    notice = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, notify, f'Waiting for the start of the {awaited}.')
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(runtime.agent)
        finally:
            notice.cancel()
        for sentence in await describe_missing(runtime):
            notify(sentence)
        yield


async def describe_missing(runtime: AgentRuntime) -> list[str]:
    """Return a sentence for each MCP server that is not running and each skill that cannot be loaded, with the reason.

    The agent is in use. Secrets are removed.
    """
    errors = [error for each in mcp_servers_of(runtime) for error in each.errors.items()]
    sentences = [f'The MCP server {name} is not running: {error}' for name, error in errors]
    with suppress(UserError):  # a directory is missing, with which no turn starts
        catalog = await runtime.skills.catalog()
        sentences += [str(problem) for problem in catalog.diagnostics if problem.severity == 'error']
    return [escape_invisible(str(redact(sentence))) for sentence in sentences]


def mcp_servers_of(runtime: AgentRuntime) -> list[McpServers]:
    """Return the capabilities with MCP servers. An agent of `--agent` has its own, beside those of the configuration."""
    capabilities: list[AbstractCapability[Any] | None] = [runtime.mcp_servers]
    runtime.agent.root_capability.apply(capabilities.append)
    # The agent of the command line has the servers of the configuration itself.
    return list({id(each): each for each in capabilities if isinstance(each, McpServers)}.values())
