"""`serve_stdio`: the MCP server of one person, on standard input and output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

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

from ._lines import Answers, forward_messages, text_files
from ._server import create_mcp_server

__all__ = ('serve_stdio',)


async def serve_stdio(
    agents: Mapping[str, AnyAgent],
    store: SqlStore,
    settings: ServerSettings,
    *,
    owner: str,
    streams: tuple[BinaryIO, BinaryIO],
) -> None:
    """Serve agents until standard input ends. Then running turns get `shutdown_seconds`, as when a server stops.

    A line that is no message, or a longer one than 50 million characters, is answered with an error.

    Args:
        agents: The agents, by name.
        store: The store. Like a server, the process resumes its runs of crashed processes.
        settings: The settings of the server.
        owner: The owner of the conversations. Keys of a server with this owner see the same ones.
        streams: The input and the output, one message a line. Nothing else may be written to the output.
    """
    check_agents(agents, store)
    caller = caller_of_host(Identity(owner=owner))
    async with open_state(agents, store, settings, ServerMetrics()) as state:
        server = create_mcp_server(Access(state=state, caller=caller))
        async with stdio_server(*text_files(*streams)) as (read, write), anyio.create_task_group() as group:
            forward, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
            answers = Answers(write)
            group.start_soon(forward_messages, read, answers, forward)
            async with messages:
                await server.run(messages, answers, server.create_initialization_options())
