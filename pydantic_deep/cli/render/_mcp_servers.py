"""MCP servers and their tools as lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from pydantic_deep.audit import redact
from pydantic_deep.mcp import McpServerStatus

from ._terminal_text import escape_invisible


def render_mcp_servers(statuses: Sequence[McpServerStatus]) -> Iterator[Text]:
    """Yield the lines of a list of servers: state, command or address, and tools, with those that need approval marked."""
    if not statuses:
        yield Text('No MCP servers are configured.')
    for status in statuses:
        resources = f', {_count(status.resources, "resource")}' if status.resources else ''
        state = f'{_count(len(status.tools), "tool")}{resources}' if status.error is None else 'not running'
        yield Text.assemble((_plain(status.name), 'bold'), f': {state}', (f'  {_plain(status.label)}', 'dim'))
        if status.error is not None:
            yield Text(f'  {_plain(status.error)}', 'red')
        for tool in status.tools:
            yield Text(f'  {_plain(tool.name)}{"  (asks)" if tool.needs_approval else ""}')


def _plain(text: str) -> str:
    """Return a text of a server without secrets and control characters."""
    return escape_invisible(str(redact(text)))


def _count(number: int, noun: str) -> str:
    return f'{number} {noun}' if number == 1 else f'{number} {noun}s'
