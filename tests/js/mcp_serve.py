"""A server for other people's clients of MCP. It prints its addresses and a key as one line of JSON.

`url` is our server. `fixture` is the same server with the fixtures of the conformance kit in place of our tools: the
route, its checks, its sessions and its transport are ours. The kit can send no key, so a login admits it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from starlette.requests import Request

from pydantic_deep import create_deep_agent
from pydantic_deep.server import Identity, ServerSettings, create_api_key, create_app
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.mcp import _http
from pydantic_deep.skills import Skill
from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel
from tests.js.mcp_fixture import create_fixture_server
from tests.js.serve import answer

KIT = 'kit'
"""The owner who gets the fixtures."""

AGENTS = {
    'careful': create_deep_agent(
        ScriptedModel(then=answer),
        skills=[Skill('poetry', 'Writes poems.', body='Rhyme.')],
        interrupt_on={'write_file': True},
    )
}
"""The agents, for `pydantic-deep mcp` too."""

_create_mcp_server: Callable[[Access], Server[Any]] = _http.create_mcp_server


def create_mcp_server(access: Access) -> Server[Any]:
    """Return the server with the fixtures for the kit, and ours for everyone else."""
    return (create_fixture_server if access.caller.identity.owner == KIT else _create_mcp_server)(access)


async def main() -> None:
    """Serve until stopped."""
    _http.create_mcp_server = create_mcp_server
    with socket.create_server(('127.0.0.1', 0)) as ours, socket.create_server(('127.0.0.1', 0)) as fixtures:
        ports = {listener.getsockname()[1]: owner for listener, owner in ((ours, 'ada'), (fixtures, KIT))}
        url, fixture = (f'http://127.0.0.1:{port}/mcp' for port in ports)

        def log_in(request: Request) -> Identity | None:
            has_key = 'authorization' in request.headers
            return None if has_key else Identity(owner=ports[request.scope['server'][1]])

        async with open_store('memory:') as store:
            key = await create_api_key(store, name='js', scopes=['run', 'approve'], owner='ada')
            settings = ServerSettings(
                requests_per_second=1000, request_burst=10_000, shutdown_seconds=1, mcp_answers=True
            )
            app = create_app(AGENTS, store, settings, authenticate=log_in)
            print(json.dumps({'url': url, 'fixture': fixture, 'key': key}), flush=True)
            await uvicorn.Server(uvicorn.Config(app, log_config=None)).serve(sockets=[ours, fixtures])


if __name__ == '__main__':
    anyio.run(main)
