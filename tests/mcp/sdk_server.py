"""An MCP server of the SDK, for tests over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.types import ToolAnnotations
from mcp_types import ElicitRequest, ElicitRequestURLParams, InputRequiredResult
from pydantic import BaseModel, Field


class Name(BaseModel):
    """The answer to a question."""

    name: str


class Count(BaseModel):
    """The answer to another question."""

    count: int = Field(ge=1, le=5)


async def ask_name() -> Elicit[Name]:
    """Ask for a name."""
    return Elicit('Who?', Name)


async def ask_count() -> Elicit[Count]:
    """Ask for a number."""
    return Elicit('How many?', Count)


def create_server(note: Callable[[str], None] = lambda _: None) -> MCPServer:
    """Return a server with a tool that only reads, and tools that ask the user: within the call, or before it.

    Args:
        note: Is called with each effect.
    """
    server = MCPServer('sdk', log_level='CRITICAL')

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def ask(ctx: Context) -> str:
        """Ask the user."""
        return str(await ctx.elicit('Who?', Name))

    @server.tool()
    async def book(
        item: str, name: Annotated[Name, Resolve(ask_name)], count: Annotated[Count, Resolve(ask_count)]
    ) -> str:
        """Book an item."""
        note(f'{count.count} {item} for {name.name}')
        return 'booked'

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def odd() -> InputRequiredResult:
        """Ask to open an address that is none."""
        question = ElicitRequestURLParams(message='Click.', url='javascript:alert(1)')
        return InputRequiredResult(input_requests={'q': ElicitRequest(params=question)})

    return server
