"""The MCP servers that an editor passes with a session. The editor's user chose them, so they need no other trust. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer
from pydantic import ValidationError

from pydantic_deep.cli.turn._runtime import Extras, Settings
from pydantic_deep.mcp import McpConfigError, McpServer

EditorMcpServer: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
"""An MCP server as an editor passes it."""


def with_mcp_servers(settings: Settings, extras: Extras, servers: Sequence[EditorMcpServer]) -> tuple[Settings, Extras]:
    """Return the settings and extras with the servers of an editor, which replace configured ones of the same name.

    Raises:
        McpConfigError: A server has a transport that is not supported, or is invalid.
    """
    given = {server.name: _server(server, settings.directory) for server in servers}
    names = dict.fromkeys((*settings.mcp_servers, *given))
    return (
        settings.model_copy(update={'mcp_servers': tuple(names)}),
        replace(extras, mcp_servers={**extras.mcp_servers, **given}),
    )


def _server(server: EditorMcpServer, directory: str) -> McpServer:
    match server:
        case McpServerStdio():
            env = {variable.name: variable.value for variable in server.env}
            fields = {'command': server.command, 'args': tuple(server.args), 'env': env, 'cwd': directory}
        case HttpMcpServer():
            fields = {'url': server.url, 'headers': {header.name: header.value for header in server.headers}}
        case _:
            raise McpConfigError(
                f'The MCP server {server.name!r} uses the transport {server.type!r}, which is not supported. Use stdio or '
                'http.'
            )
    try:
        return McpServer.model_validate(fields)
    except ValidationError as error:
        message = error.errors(include_url=False, include_input=False)[0]['msg'].removeprefix('Value error, ')
        raise McpConfigError(f'The MCP server {server.name!r} is invalid: {message}.') from None
