"""An MCP server of the SDK, for tests over HTTP."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations
from pydantic import BaseModel


class Name(BaseModel):
    """The answer to a question."""

    name: str


def create_server() -> MCPServer:
    """Return a server with a tool that only reads, and a tool that asks the user."""
    server = MCPServer('sdk', log_level='CRITICAL')

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def ask(ctx: Context) -> str:
        """Ask the user."""
        return str(await ctx.elicit('Who?', Name))

    return server
