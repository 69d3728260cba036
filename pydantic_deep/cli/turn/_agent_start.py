"""`started_agent`: an agent while it is used, with a notice if its start takes long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from pydantic_deep.cli.render._terminal_text import escape_invisible

from ._runtime import AgentRuntime

PATIENCE_SECONDS: Final = 1.0
"""How long the start of an agent may take without a notice. That of a server on this machine is usually faster."""


@asynccontextmanager
async def started_agent(runtime: AgentRuntime, notify: Callable[[str], None]) -> AsyncGenerator[None]:
    """Start the agent of a runtime, such as its MCP servers, and stop it at the end.

    Args:
        runtime: The agent and its MCP servers.
        notify: Tells the user a sentence about what takes long.
    """
    servers = [] if runtime.mcp_servers is None else [escape_invisible(name) for name in runtime.mcp_servers.servers]
    awaited = f'{"MCP server" if len(servers) == 1 else "MCP servers"} {", ".join(servers)}' if servers else 'agent'
    notice = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, notify, f'Waiting for the start of the {awaited}.')
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(runtime.agent)
        finally:
            notice.cancel()
        yield
