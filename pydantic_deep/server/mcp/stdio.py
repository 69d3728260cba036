"""`serve_stdio`: the MCP server of one person, on standard input and output."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from pydantic_deep.server._agents import AnyAgent, check_agents
from pydantic_deep.server._lifespan import open_state
from pydantic_deep.server._metrics import ServerMetrics
from pydantic_deep.server._settings import ServerSettings
from pydantic_deep.server.access._identity import Identity, caller_of_host
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.store import SqlStore

from ._lines import open_input, refuse_others
from ._server import create_mcp_server

__all__ = ('serve_stdio',)


async def serve_stdio(
    agents: Mapping[str, AnyAgent],
    store: SqlStore,
    settings: ServerSettings,
    *,
    owner: str,
    stdin: anyio.AsyncFile[str] | None = None,
    stdout: anyio.AsyncFile[str] | None = None,
) -> None:
    """Serve agents until standard input ends. Then running turns get `shutdown_seconds`, as when a server stops.

    While it runs, other output of the process goes to standard error. A line that is no message, or a longer one than 50
    million characters, is answered with an error.

    Args:
        agents: The agents, by name.
        store: The store. Like a server, the process resumes its runs of crashed processes.
        settings: The settings of the server.
        owner: The owner of the conversations. Keys of a server with this owner see the same ones.
        stdin: The input, one message a line. Default: that of the process.
        stdout: The output. Default: that of the process.
    """
    check_agents(agents, store)
    caller = caller_of_host(Identity(owner=owner))
    async with open_state(agents, store, settings, ServerMetrics()) as state:
        server = create_mcp_server(Access(state=state, caller=caller))
        with open_input() if stdin is None else nullcontext(stdin) as lines:
            async with stdio_server(lines, stdout) as (read, write), anyio.create_task_group() as group:
                forward, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
                group.start_soon(refuse_others, read, write, forward)
                async with messages:
                    await server.run(messages, write, server.create_initialization_options())
