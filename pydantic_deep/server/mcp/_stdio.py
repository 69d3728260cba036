"""`serve_stdio`: the MCP server of one person, on standard input and output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio
from mcp.server.stdio import stdio_server

from pydantic_deep.server._agents import AnyAgent
from pydantic_deep.server._app import create_app
from pydantic_deep.server._settings import ServerSettings
from pydantic_deep.server.access._identity import Caller, Identity
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.store import SqlStore

from ._server import create_mcp_server

KEY_ID: Final = 'mcp-stdio'
"""The account that the limits count, which no key has: whoever starts the process is its only caller."""


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

    While it runs, other output of the process goes to standard error.

    Args:
        agents: The agents, by name.
        store: The store. Like a server, the process resumes its runs of crashed processes.
        settings: The settings of the server.
        owner: The owner of the conversations. Keys of a server with this owner see the same ones.
        stdin: The input, one message a line. Default: that of the process.
        stdout: The output. Default: that of the process.
    """
    app = create_app(agents, store, settings)
    caller = Caller(identity=Identity(owner=owner), account=KEY_ID, has_key=False)
    async with app.router.lifespan_context(app):
        server = create_mcp_server(Access(state=app.state.server, caller=caller))
        async with stdio_server(stdin, stdout) as (read, write):
            await server.run(read, write, server.create_initialization_options())
