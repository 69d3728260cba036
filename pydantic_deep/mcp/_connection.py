"""The connection to one server. A failure is an error text and never ends a run."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar, cast

import anyio
from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.toolsets import ToolsetTool

from pydantic_deep._checks import describe_problem

from ._config import McpServer
from ._open_calls import CALL, OpenCall, OpenCalls
from ._questions import Asked, PausedCall, Response

if TYPE_CHECKING:  # these need the extra, and are imported with the first connection
    from httpx2 import Response as HttpResponse
    from pydantic_ai.mcp import MCPToolset

T = TypeVar('T')

_LOGGER = logging.getLogger('pydantic_deep')

_CONNECTION_CLOSED: Final = -32000
"""The code of the error by which the MCP SDK reports that a server closed its connection."""

_MAX_ERROR_CHARS: Final = 500
"""Maximum length in characters of an error, and of a line from the standard error of a server."""

_MAX_LOG_BYTES: Final = 4_000
"""The part of the standard error of a server that is searched for its last line, in bytes."""

_PROBE_SECONDS: Final = 5.0
"""How long to wait, after a failed call, for the answer that shows that the server still has the connection."""

_HTTP_SECONDS: Final = 30.0
"""How long to wait for a connection over HTTP and for a request to be sent, as in the MCP SDK."""

_HTTP_READ_SECONDS: Final = 300.0
"""How long a response over HTTP may be silent if calls and questions have shorter limits, as in the MCP SDK."""

RETRY_SECONDS: Final = 300.0
"""How long runs do without a server that did not answer when it was started, instead of waiting for it again."""

NOT_STARTED: Final = 'not started'
"""The error of a server that nobody uses."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Limits in seconds."""

    start: float
    """For the start of a server, and for each of its lists of tools and resources."""
    call: float
    """For the result of one call."""
    question: float
    """For the answer to a question of the server."""


class CallLostError(LookupError):
    """A call that waited for an answer is not open any more."""


class Connection:
    """The connection to one server, which its users share.

    Args:
        name: The name of the server.
        server: The server.
        variables: The values of its variables.
        timeouts: How long to wait for it.
        allow: Patterns of tools that need no approval.

    Raises:
        McpConfigError: A variable without a default is not set.
    """

    def __init__(
        self,
        name: str,
        server: McpServer,
        variables: Mapping[str, str],
        timeouts: Timeouts,
        allow: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.allow = allow
        self.label = server.label
        """The command line or the address, without values of variables."""
        self.error: str | None = NOT_STARTED
        """Why there is no connection, for people; `None` if there is one. The model never gets this text, as a server can
        write parts of it.
        """
        self.tools: Mapping[str, ToolsetTool[Any]] = {}
        """The tools of the server, as they were listed last."""
        self.resources: list[dict[str, str]] = []
        """The resources and templates of the server: `uri`, `name` and `description`."""
        self._server = server.expand(name, variables)
        self._secrets = {value: name for name in server.variables if (value := variables.get(name))}
        self._timeouts = timeouts
        self._toolset: MCPToolset[Any] | None = None
        self._log: TextIO | None = None
        self._users = 0
        self._silent_until = 0.0
        """When a server may be started again that did not answer, on the clock `monotonic`."""
        self._lock = anyio.Lock()
        self._calls = OpenCalls()
        self._is_listed: bool | None = None
        """Whether `tools` are those that the server has; `None` if this connection has not listed any."""
        self._held: dict[str, OpenCall] = {}
        """The calls that wait for the answer of a person, by the ids of their questions."""

    @property
    def is_missing(self) -> bool:
        """Whether the server was started without success, so that its tools are unknown."""
        return self._users > 0 and self._toolset is None and not self.tools

    async def enter(self) -> None:
        """Add a user, and connect if there is no connection. A failure is in `error`."""
        self._users += 1
        self.mark_changed()
        try:
            await self.reopen()
        except BaseException:
            await self.exit()
            raise

    async def exit(self) -> None:
        """Remove a user, and disconnect after the last one, even if it is cancelled."""
        self._users -= 1
        if not self._users:  # else one of them may hold the lock for as long as the server starts
            with anyio.CancelScope(shield=True):
                await self._close_unused()

    async def reopen(self) -> None:
        """Connect again if a connection has users and was lost, unless the server did not answer a short time ago."""
        async with self._lock:
            if self._users and self._toolset is None and monotonic() >= self._silent_until:
                await self._open()

    def forget_silence(self) -> None:
        """Let the next user start the server, even if it did not answer a short time ago."""
        self._silent_until = 0.0

    def mark_changed(self) -> None:
        """List the tools again before they are used. Servers do not always announce changes, or their restart."""
        self._is_listed = None if self._is_listed is None else False

    async def list_tools(self, ctx: RunContext[Any]) -> Mapping[str, ToolsetTool[Any]]:
        """List the tools and resources, and return the tools by their names at the server. Without a connection, they are
        those that were listed last.

        A server that has lost the connection since they were listed, as after a restart, is connected again.
        """
        toolset, was_listed = self._toolset, self._is_listed
        # A server may be busy with a call of another run: it is not lost if its list takes too long.
        if toolset is not None and not was_listed and not (self.tools and self._calls.are_open):
            try:
                tools = await self._in_time(toolset.get_tools(ctx))
                self.resources = await self._in_time(_list_resources(toolset))
            except Exception as error:  # noqa: BLE001 - of the transport, which may raise anything
                await self._lose(toolset, error)
                if was_listed is not None:
                    await self.reopen()
                    return await self.list_tools(ctx)
            else:
                self.tools, self._is_listed = tools, True
        return self.tools

    async def call_tool(
        self,
        name: str,
        args: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],
        paused: PausedCall | None = None,
    ) -> Any:
        """Call a tool, and return its result.

        The server and the call outlive the run if the call asks.

        Args:
            name: The name of the tool at the server.
            args: The arguments.
            ctx: The run.
            tool: The tool.
            paused: The answers with which the call continues or runs again.

        Raises:
            ToolFailed: The tool failed, or the connection was lost.
            Asked: The call waits for an answer.
        """
        call = OpenCall(paused)
        call.task = asyncio.create_task(self._run(call, lambda toolset: toolset.call_tool(name, args, ctx, tool)))
        call.task.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody may wait for it
        return await self._follow(call)

    async def resume(self, held: str, response: Response) -> Any:
        """Answer the question of a call that this process holds, and return the result of the call.

        Raises:
            CallLostError: The call is not open any more.
            ToolFailed, Asked: As for `call_tool`.
        """
        call = self._held.pop(held, None)
        if call is None or not call.answer(response):
            raise CallLostError(held)
        return await self._follow(call)

    async def stop_held(self) -> None:
        """Stop the calls that wait for the answer of a person."""
        for call in [*self._held.values()]:
            await call.stop()

    async def read_resource(self, uri: str) -> Any:
        """Return the contents of a resource.

        Raises:
            ToolFailed: The server failed, or the connection was lost.
        """
        return await self._using(lambda toolset: toolset.read_resource(uri))

    def not_made(self, reason: str = 'is not running') -> ToolFailed:
        """Return the failure of a call that the server did not get."""
        return ToolFailed(f'The MCP server {self.name!r} {reason}. The call was not made.')

    async def _run(self, call: OpenCall, work: Callable[[MCPToolset[Any]], Awaitable[T]]) -> T:
        """Make a call, and keep the connection until it has ended."""
        self._users += 1  # not `enter`: the connection may be lost before it is the turn of this call
        try:
            async with self._calls.opened(call):
                CALL.set(call)
                return await self._using(work)
        finally:
            self._held.pop(call.question_id, None)
            await self.exit()

    async def _follow(self, call: OpenCall) -> Any:
        """Wait for the result of a call, or its next question."""
        try:
            question = await call.wait(self._timeouts.call)
        except TimeoutError:
            await call.stop()
            raise ToolFailed(
                f'The MCP server {self.name!r} did not answer within {self._timeouts.call:g} seconds. The call may have '
                'taken effect.'
            ) from None
        except asyncio.CancelledError:
            await call.stop()
            raise
        if question is None:
            return call.task.result()
        self._held[call.question_id] = call
        raise Asked(PausedCall(questions={'': question}, held=call.question_id, earlier=tuple(call.used)))

    async def _using(self, work: Callable[[MCPToolset[Any]], Awaitable[T]]) -> T:
        await self.reopen()
        toolset = self._toolset
        if toolset is None:
            raise self.not_made()
        try:
            return await work(toolset)
        except (ToolFailed, Asked):
            raise
        except Exception as error:
            self.mark_changed()
            code, text = _code_of(error), error.message if isinstance(error, ModelRetry) else _one_line(error)
            if await self._is_lost(toolset):
                await self._lose(toolset, error)
                text = f'The MCP server {self.name!r} failed during this call, which may have taken effect.'
            elif code is None:
                text = (
                    f'The MCP server {self.name!r} returned an invalid result. The call may have taken effect. {text}'
                )
            elif code == _CONNECTION_CLOSED:  # servers use this code, too
                text = f'The MCP server {self.name!r} failed during this call, which may have taken effect: {text}'
            raise ToolFailed(text) from error

    async def _is_lost(self, toolset: MCPToolset[Any]) -> bool:
        """Return whether another request fails, too. A server that is silent may be busy, and is not lost."""
        with anyio.move_on_after(_PROBE_SECONDS):
            try:
                await toolset.list_tools()
            except Exception:  # noqa: BLE001 - of the transport, which may raise anything
                return True
        return False

    async def _open(self) -> None:
        """Connect."""
        self._log = cast('TextIO', TemporaryFile('w+', encoding='utf-8', errors='replace'))  # noqa: SIM115 - closed below
        self._is_listed = None
        opening = CALL.set(None)  # tasks of the connection would ask for the call that opens it as long as they run
        started = monotonic()
        try:
            toolset = _create_toolset(
                self.name, self._server, self._timeouts, self._log, self._calls, self.mark_changed
            )
            await toolset.__aenter__()
            self._toolset = toolset
        except Exception as error:  # noqa: BLE001 - of the transport, which may raise anything
            seconds = min(self._timeouts.start, _HTTP_SECONDS)
            is_silent = monotonic() >= started + seconds
            if is_silent:
                self._silent_until = monotonic() + RETRY_SECONDS
            await self._close(TimeoutError(f'no answer within {seconds:g} seconds') if is_silent else error)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._close()
            raise
        else:
            self.error = None
        finally:
            CALL.reset(opening)

    async def _in_time(self, answer: Awaitable[T]) -> T:
        """Return the answer to a request that each run waits for.

        Raises:
            TimeoutError: There was none within the time for the start of a server.
        """
        with anyio.move_on_after(self._timeouts.start):
            return await answer
        self._silent_until = monotonic() + RETRY_SECONDS
        raise TimeoutError(f'no answer within {self._timeouts.start:g} seconds')

    async def _close(self, cause: Exception | None = None) -> None:
        """Disconnect.

        Args:
            cause: The failure, if there was one.
        """
        toolset, self._toolset = self._toolset, None
        log, self._log = self._log, None
        if toolset is not None:
            try:
                await toolset.__aexit__(None, None, None)
            except Exception as error:  # noqa: BLE001 - of the transport, which may raise anything
                _LOGGER.warning(
                    'The connection to the MCP server %r did not close: %s', self.name, self._masked(_one_line(error))
                )
        if log is not None:
            with log:
                if cause is not None:
                    self.error = self._masked(_reason(cause, log))
                    _LOGGER.warning('The MCP server %r is not running: %s', self.name, self.error)

    async def _close_unused(self) -> None:
        """Disconnect, unless a new user has come before the lock was free."""
        async with self._lock:
            if not self._users:
                self.error = self.error or NOT_STARTED
                await self._close()

    async def _lose(self, toolset: MCPToolset[Any], error: Exception) -> None:
        """Close a connection that failed, unless another call has done so: a newer connection stays."""
        async with self._lock:
            if self._toolset is toolset:
                await self._close(error)

    def _masked(self, text: str) -> str:
        """Return a text with the names of variables instead of their values."""
        for value, name in self._secrets.items():
            text = text.replace(value, f'${{{name}}}')
        return text


def _create_toolset(
    name: str,
    server: McpServer,
    timeouts: Timeouts,
    log: TextIO,
    calls: OpenCalls,
    on_change: Callable[[], None],
) -> MCPToolset[Any]:
    """Return pydantic-ai's client of a server."""
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

    from ._client import create_toolset

    if server.url is not None:
        transport = StreamableHttpTransport(
            server.url, headers=dict(server.headers), httpx_client_factory=_http_clients(timeouts, log)
        )
    else:
        transport = StdioTransport(
            server.command or '', [*server.args], env=dict(server.env), cwd=server.cwd, keep_alive=False, log_file=log
        )
    return create_toolset(
        transport,
        name,
        calls,
        on_change=on_change,
        start_seconds=timeouts.start,
        call_seconds=timeouts.call,
        question_seconds=timeouts.question,
    )


def _http_clients(timeouts: Timeouts, log: TextIO) -> Callable[..., Any]:
    """Return the factory of HTTP clients that wait for a silent server as long as a call may take, and log errors.

    fastmcp's own clients stop reading after 5 minutes, while a question may be open for longer. Like those of the MCP
    SDK, and unlike what fastmcp requests of a factory, the clients do not follow redirects: the SDK does so within an
    origin, and `headers` may hold secrets.
    """
    from httpx2 import AsyncClient, Timeout

    read_seconds = max(_HTTP_READ_SECONDS, timeouts.call + timeouts.question)

    async def note(response: HttpResponse) -> None:
        """Log the status of an error: the exceptions of the SDK do not have it."""
        if response.is_error and response.request.method == 'POST':
            log.write(f'HTTP {response.status_code} {response.reason_phrase}\n')

    def create(*, headers: dict[str, str], auth: Any, **_options: object) -> AsyncClient:
        timeout = Timeout(_HTTP_SECONDS, read=read_seconds)
        return AsyncClient(headers=headers, auth=auth, timeout=timeout, event_hooks={'response': [note]})

    return create


async def _list_resources(toolset: MCPToolset[Any]) -> list[dict[str, str]]:
    if not toolset.capabilities.resources:
        return []
    found = [(str(each.uri), each) for each in await _listed(toolset.list_resources())]
    templates = [(each.uri_template, each) for each in await _listed(toolset.list_resource_templates())]
    return [
        {'uri': uri, 'name': each.name, **({'description': each.description} if each.description else {})}
        for uri, each in [*found, *templates]
    ]


async def _listed(answer: Awaitable[Sequence[T]]) -> Sequence[T]:
    """Return a list, which is empty if the server refuses the request: many servers have resources without templates."""
    try:
        return await answer
    except Exception as error:
        if _code_of(error) in (None, _CONNECTION_CLOSED):
            raise
        return ()


def _code_of(error: Exception) -> int | None:
    """Return the code by which a server has refused a request; `None` if the failure is another one."""
    for candidate in (error, error.__cause__):
        # The classes of the SDK differ between its generations: the code is in `error.code` or in `code`.
        code = getattr(getattr(candidate, 'error', candidate), 'code', None)
        if isinstance(code, int):
            return code
    return None


def _reason(error: Exception, log: TextIO) -> str:
    """Return why a server failed, with the last line that it wrote to its standard error, or its last error of HTTP."""
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _MAX_LOG_BYTES))
    lines = [line.strip() for line in log.read().splitlines() if line.strip()]
    return ': '.join([_one_line(error), *(line[:_MAX_ERROR_CHARS] for line in lines[-1:])])


def _one_line(error: Exception) -> str:
    """Return the message of an exception: the first problem, or the first line."""
    text = describe_problem(error) if isinstance(error, ValidationError) else str(error).strip()
    return text.partition('\n')[0][:_MAX_ERROR_CHARS] or type(error).__name__
