"""The tools of all servers as one toolset, and a tool that reads their resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import anyio
from pydantic import AnyUrl, ValidationError
from pydantic_ai import FunctionToolset, InstructionPart, RunContext, Tool, ToolDefinition
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, ToolsetTool, WrapperToolset
from pydantic_ai.usage import RunUsage
from pydantic_core import SchemaValidator, core_schema

from pydantic_deep._checks import describe_problem
from pydantic_deep._toolsets import run_toolset
from pydantic_deep._toolsets.late_toolset import LateToolset

from ._connection import CallLostError, Connection
from ._media import with_visible_media
from ._names import RESERVED, RESOURCE_TOOL, is_allowed, names_of, size_of, tool_prefix
from ._questions import DECLINED, LOST, Asked, PausedCall, paused_call

_ANY = SchemaValidator(core_schema.any_schema())
"""Accepts the arguments of calls whose schema is unknown."""


@dataclass(kw_only=True)
class McpTool(ToolsetTool[Any]):
    """A tool of a server."""

    connection: Connection
    remote_name: str
    """Its name at the server."""
    remote: ToolsetTool[Any] | None
    """Its definition; `None` if the server is not running, or no longer has the tool."""

    async def call(self, args: dict[str, Any], ctx: RunContext[Any], paused: PausedCall | None) -> Any:
        """Make a call, as `Connection.call_tool`."""
        if self.remote is None and self.connection.is_missing:
            raise self.connection.not_made()
        if self.remote is None:
            raise self.connection.not_made(f'no longer has the tool {self.tool_def.name!r}')
        return await self.connection.call_tool(self.remote_name, args, ctx, self.remote, paused)


class McpToolset(LateToolset):
    """The tools of servers.

    Args:
        connections: The connections to the servers.
        direct_chars: Maximum size of the definitions that are sent without a search.
    """

    def __init__(self, connections: Sequence[Connection], *, direct_chars: int) -> None:
        self._connections = connections
        self._direct_chars = direct_chars
        self._entered = 0
        """The number of agents that are entered."""
        self._resources = FunctionToolset[Any](
            [Tool(self._read_resource, name=RESOURCE_TOOL, metadata={'effect': 'read'})]
        )

    @property
    def id(self) -> str | None:
        """The id of the toolset in an agent."""
        return 'mcp_servers'

    @property
    def may_grow(self) -> bool:
        """Whether a server is not running whose tools are unknown."""
        return any(connection.is_missing for connection in self._connections)

    async def __aenter__(self) -> Self:
        """Connect to all servers and list their tools, for `async with agent:`. Then the errors of all are known."""
        await self.connect(bare_context())
        self._entered += 1
        return self

    async def __aexit__(self, *args: Any) -> bool | None:
        """Disconnect. At the end of the last agent, calls that wait for an answer are stopped."""
        self._entered -= 1
        if not self._entered:
            for connection in self._connections:
                await connection.stop_held()
        await self.disconnect()
        return None

    async def connect(self, ctx: RunContext[Any] | None = None) -> None:
        """Connect to all servers at the same time, or to none if this is cancelled. With a context, list their tools."""
        async with AsyncExitStack() as entered:

            async def enter(connection: Connection) -> None:
                await connection.enter()
                entered.push_async_callback(connection.exit)
                if ctx is not None:
                    await connection.list_tools(ctx)

            async with anyio.create_task_group() as tasks:
                for connection in self._connections:
                    tasks.start_soon(enter, connection)
            entered.pop_all()

    async def disconnect(self) -> None:
        """Disconnect, except from servers with calls that wait for an answer."""
        for connection in self._connections:
            await connection.exit()

    async def for_run(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """Return the toolset of a run. It connects when it is entered, as a run cannot be cancelled before."""
        return RunToolset(self, self)

    async def get_instructions(self, ctx: RunContext[Any]) -> InstructionPart | None:
        """Name the servers that are not running."""
        missing = [connection.name for connection in self._connections if connection.is_missing]
        if not missing:
            return None
        return InstructionPart(
            f'These MCP servers are not running, so their tools are missing: {", ".join(missing)}.',
            dynamic=True,
            on_change='append',
        )

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools of all servers, and the tool for their resources.

        When a run resumes, its pending calls need no search, and fail if their server is not running or no longer has
        the tool.
        """
        tools: dict[str, ToolsetTool[Any]] = {}
        servers = [connection.name for connection in self._connections]
        reserved = RESERVED.union(_names_of_functions(ctx))
        for connection in self._connections:
            listed = await connection.list_tools(ctx)
            names = names_of(connection.name, listed, servers=servers, reserved=reserved)
            tools |= {
                names[remote_name]: self._define(names[remote_name], connection, remote_name, remote)
                for remote_name, remote in listed.items()
            }
        if any(connection.resources for connection in self._connections):
            tools |= await self._resources.get_tools(ctx)
        pending = _pending_names(ctx.messages)
        unknown = pending - tools.keys() - reserved - _names_of_external_tools(ctx)
        for connection in self._connections:
            tools |= {
                name: self._define_missing(name, connection)
                for name in unknown - tools.keys()
                if name.startswith(tool_prefix(connection.name))
            }
        if sum(size_of(tool.tool_def) for tool in tools.values()) > self._direct_chars:
            tools = {
                name: tool if name in pending else replace(tool, tool_def=replace(tool.tool_def, defer_loading=True))
                for name, tool in tools.items()
            }
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call the tool at its server.

        Raises:
            ApprovalRequired: The server asks the user, or a person has to decide whether the call runs again.
        """
        if not isinstance(tool, McpTool):
            return await self._resources.call_tool(name, tool_args, ctx, tool)
        try:
            return with_visible_media(await _call(tool, tool_args, ctx))
        except Asked as asked:
            raise ApprovalRequired(metadata=asked.paused.request(tool.connection.name)) from None

    def _define(self, name: str, connection: Connection, remote_name: str, remote: ToolsetTool[Any]) -> McpTool:
        """Return a tool with its effect, and with the kind that requires approval unless it only reads."""
        definition = remote.tool_def
        metadata = definition.metadata or {}
        annotations = cast('dict[str, object]', metadata.get('annotations') or {})
        effect = 'read' if annotations.get('readOnlyHint') is True else 'external'
        servers = [each.name for each in self._connections]
        is_free = effect == 'read' or is_allowed(name, connection.allow, server=connection.name, servers=servers)
        return McpTool(
            toolset=self,
            tool_def=replace(
                definition,
                name=name,
                kind='function' if is_free else 'unapproved',
                metadata={**metadata, 'effect': effect},
                toolset_id=self.id,
            ),
            max_retries=remote.max_retries,
            args_validator=remote.args_validator,
            connection=connection,
            remote_name=remote_name,
            remote=remote,
        )

    def _define_missing(self, name: str, connection: Connection) -> McpTool:
        """Return a tool for pending calls that cannot be made. No request has its definition."""
        kind = 'unapproved' if connection.is_missing else 'function'  # whether a person may decide once it runs
        return McpTool(
            toolset=self,
            tool_def=ToolDefinition(name=name, kind=kind, metadata={'effect': 'external'}, toolset_id=self.id),
            max_retries=0,
            args_validator=_ANY,
            connection=connection,
            remote_name='',
            remote=None,
        )

    async def _read_resource(self, server: str, uri: str = '') -> Any:
        """Read a resource of an MCP server; without `uri`, list them."""
        by_name = {connection.name: connection for connection in self._connections if connection.resources}
        if server not in by_name:
            raise ModelRetry(f'No MCP server {server!r} has resources. Servers with resources: {", ".join(by_name)}.')
        if not uri:
            return by_name[server].resources
        try:
            AnyUrl(uri)  # the SDK would raise the same error, like that of an invalid result
        except ValidationError as error:
            raise ModelRetry(f'{uri!r} is no URI: {describe_problem(error)}. Without `uri`, they are listed.') from None
        return with_visible_media(await by_name[server].read_resource(uri))


@dataclass
class RunToolset(WrapperToolset[Any]):
    """The toolset of one run. Calls that wait for an answer outlive the run."""

    servers: McpToolset

    async def __aenter__(self) -> Self:
        """Connect to all servers."""
        await self.servers.connect()
        return self

    async def __aexit__(self, *args: Any) -> bool | None:
        """Disconnect."""
        await self.servers.disconnect()
        return None


def bare_context() -> RunContext[Any]:
    """Return a context without a run, for lists of tools."""
    from pydantic_ai.models.test import TestModel  # a context needs a model, which nothing calls

    return RunContext[Any](deps=None, model=TestModel(), usage=RunUsage())


def _names_of_functions(ctx: RunContext[Any]) -> Iterator[str]:
    """Yield the names of the functions of the agent, visible or hidden. They take precedence over tools of servers."""
    for leaf in _leaves(ctx):
        if isinstance(leaf, (FunctionToolset, run_toolset.RunToolset)):
            yield from cast('FunctionToolset[Any]', leaf).tools


def _names_of_external_tools(ctx: RunContext[Any]) -> set[str]:
    """Return the names of the tools that the client of the turn runs."""
    return {tool.name for leaf in _leaves(ctx) if isinstance(leaf, ExternalToolset) for tool in leaf.tool_defs}


def _leaves(ctx: RunContext[Any]) -> list[AbstractToolset[Any]]:
    leaves: list[AbstractToolset[Any]] = []
    if ctx.tool_manager is not None:
        ctx.tool_manager.toolset.apply(leaves.append)
    return leaves


def _pending_names(messages: Sequence[ModelMessage]) -> set[str]:
    """Return the names of the tools that were called by the last response and have not returned."""
    returned: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return {call.tool_name for call in message.tool_calls if call.tool_call_id not in returned}
        returned |= {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)}
    return set()


async def _call(tool: McpTool, args: dict[str, Any], ctx: RunContext[Any]) -> Any:
    """Make a call, or continue the one that a person answered."""
    paused, answer = paused_call(ctx.tool_call_metadata) or (None, None)
    if paused is None or answer is None:
        return await tool.call(args, ctx, paused)
    (key, question), *others = paused.questions.items()
    try:
        response = question.response(answer)
    except ValueError:  # `answer_approvals` refuses such answers, but others may write them
        raise Asked(paused) from None
    if paused.held is None:
        paused = PausedCall(
            questions=dict(others),
            responses={**paused.responses, key: response},
            request_state=paused.request_state,
        )
        if others:
            raise Asked(paused)
        return await tool.call(args, ctx, paused)
    try:
        return await tool.connection.resume(paused.held, response)
    except CallLostError:
        if answer.is_declined:
            raise ToolFailed(LOST + DECLINED) from None
    paused = PausedCall(earlier=(*paused.earlier, (question, response)))
    if (tool.tool_def.metadata or {})['effect'] != 'read':
        raise ApprovalRequired(metadata=paused.request_to_repeat())
    return await tool.call(args, ctx, paused)
