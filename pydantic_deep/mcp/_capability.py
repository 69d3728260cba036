"""The capability with the tools of MCP servers, for any pydantic-ai agent."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final, cast

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.toolsets import AbstractToolset

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._checks import check_object, check_positive, check_strings
from pydantic_deep._pause_check import check_can_pause

from ._config import McpServer, check_name, read_mcp_file
from ._connection import Connection, Timeouts
from ._status import McpServerStatus, McpToolStatus
from ._toolset import McpTool, McpToolset, RunToolset, bare_context

DIRECT_CHARS: Final = 8_000
"""Maximum size of the definitions of all tools that are sent with each request, in characters: about 2,000 tokens."""

START_TIMEOUT_SECONDS: Final = 30.0
"""How long to wait for the start of a server. `npx` and `uvx` may have to download it first."""

CALL_TIMEOUT_SECONDS: Final = 300.0
"""How long to wait for the result of a call, as in pydantic-ai."""


QUESTION_SECONDS: Final = 600.0
"""How long a call is held that waits for the answer of a person: about as long as people stay at a dialogue."""


@dataclass(kw_only=True)
class McpServers(BaseCapability[object]):
    """Gives the model the tools and resources of MCP servers: `McpServers.from_file('.mcp.json')`.

    The name of a tool is `SERVER_TOOL`, with a digest if another tool has or could have this name. A call needs approval
    unless the server declares that the tool only reads (`readOnlyHint`) or `allow` names it. This annotation also
    declares the effect of the tool: after a crash, calls that only read run again, and a person decides on all others.
    Results are untrusted for `UntrustedContent`.

    The servers start with a run and stop after it, or live as long as `async with agent:`. All users of the agent share
    them. A server that cannot start costs only its own tools: the model is informed, the reason is logged, and the next
    run tries again, or the next one after five minutes if the server did not answer within `start_timeout_seconds`. If
    it stops in a call, this call fails, and the next call starts it again. Several `McpServers` of an agent are combined.

    If the definitions of the tools are larger than `direct_chars`, the model finds them by search.

    A question of a server to the user (elicitation) pauses the run like one of `AskUser`, and the answer continues the
    call. If the server waits within its call, the server and the call stay in this process for `question_seconds`.
    An answer that comes too late, or in another process, repeats the call if its tool only reads; otherwise a person
    decides.

    Raises:
        ModuleNotFoundError: The extra `mcp` is not installed.
        McpConfigError: A variable of a server is not set, or a name is invalid.
        TypeError: `allow` is a single string.
        ValueError: A limit is not positive.
        UserError: At the start of a run without approvals.
    """

    id: str | None = 'mcp_servers'
    servers: Mapping[str, McpServer]
    """The servers by name."""
    allow: Sequence[str] = ()
    """Tools that need no approval, by name or pattern: `github_get_*`. Rules in `interrupt_on` still apply to them."""
    direct_chars: int = DIRECT_CHARS
    """Maximum size of the definitions of all tools in characters. Larger ones are deferred behind a tool search."""
    start_timeout_seconds: float = START_TIMEOUT_SECONDS
    """How long to wait for the start of a server, and for its lists of tools and resources."""
    call_timeout_seconds: float = CALL_TIMEOUT_SECONDS
    """How long to wait for the result of a call. The time until a person answers a question does not count."""
    question_seconds: float = QUESTION_SECONDS
    """How long a call is held that waits for the answer of a person. Servers with the protocol 2026-07-28 do not wait
    within a call, so their questions have no limit.
    """
    variables: Mapping[str, str] | None = field(default=None, repr=False, compare=False)
    """The values of `${VAR}`. `None` for the environment variables of this process."""
    _connections: list[Connection] = field(default_factory=list[Connection], init=False, repr=False, compare=False)
    _toolset: McpToolset = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if find_spec('fastmcp') is None:
            raise ModuleNotFoundError(
                "MCP servers need 'fastmcp', which is not installed. Install the extra: "
                "`pip install 'versioned-deep-agents[mcp]'`.",
                name='fastmcp',
            )
        check_strings('allow', self.allow)
        check_object('servers', self.servers, Mapping, 'To read a file, use `McpServers.from_file(path)`.')
        for name in ('direct_chars', 'start_timeout_seconds', 'call_timeout_seconds', 'question_seconds'):
            check_positive(name, getattr(self, name))
        for name, server in self.servers.items():
            check_object(f'servers[{name!r}]', server, McpServer, "For example, `McpServer(url='https://…')`.")
            check_name(name, 'An MCP server')
        variables = os.environ if self.variables is None else self.variables
        timeouts = Timeouts(
            start=self.start_timeout_seconds, call=self.call_timeout_seconds, question=self.question_seconds
        )
        self._connections = [
            Connection(name, server, variables, timeouts, self.allow) for name, server in self.servers.items()
        ]
        self._toolset = McpToolset(self._connections, direct_chars=self.direct_chars)

    @classmethod
    def from_file(cls, path: str | Path, *, allow: Sequence[str] = ()) -> McpServers:
        """Return the servers of a file such as `.mcp.json`, in the format of Claude Code and other clients.

        Args:
            path: The file.
            allow: As in the constructor.

        Raises:
            McpConfigError: The file is invalid.
        """
        return cls(servers=read_mcp_file(path), allow=allow)

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> McpServers:
        """Return one capability with the servers of all, each with its own limits and `allow`.

        Of two servers with the same name, it has the last.
        """
        instances = [cast('McpServers', capability) for capability in capabilities]
        combined = copy(instances[-1])
        combined.servers = {name: server for each in instances for name, server in each.servers.items()}
        connections = {connection.name: connection for each in instances for connection in each._connections}
        combined._connections = [*connections.values()]
        combined._toolset = McpToolset(combined._connections, direct_chars=combined.direct_chars)
        return combined

    def get_toolset(self) -> AbstractToolset[object]:
        """Return the tools of the servers."""
        return self._toolset

    async def before_run(self, ctx: RunContext[object]) -> None:
        """Check that the run can ask a person.

        Raises:
            UserError: It has no approvals.
        """
        if self.servers:
            check_can_pause(ctx, 'McpServers')

    @property
    def errors(self) -> dict[str, str]:
        """Why servers are not connected, by name, as of the last attempt. A server that is connected is missing."""
        return {each.name: each.error for each in self._connections if each.error is not None}

    async def status(self) -> list[McpServerStatus]:
        """Return the state of each server, after connecting to it if necessary, also if it did not answer before."""
        for connection in self._connections:
            connection.forget_silence()
        async with cast('AbstractAsyncContextManager[object]', RunToolset(self._toolset, self._toolset)):
            tools = (await self._toolset.get_tools(bare_context())).values()
            return [
                McpServerStatus(
                    name=connection.name,
                    label=connection.label,
                    error=connection.error,
                    tools=tuple(
                        McpToolStatus(
                            name=tool.tool_def.name,
                            effect=(tool.tool_def.metadata or {})['effect'],
                            needs_approval=tool.tool_def.kind == 'unapproved',
                        )
                        for tool in tools
                        if isinstance(tool, McpTool) and tool.connection is connection
                    ),
                    resources=len(connection.resources),
                )
                for connection in self._connections
            ]
