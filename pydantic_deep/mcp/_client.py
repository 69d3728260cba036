"""fastmcp's client of a server, which pauses calls that ask the user. It needs the extra, so import it late."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from fastmcp import Client
from fastmcp.client.transports import ClientTransport
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
    LoggingMessageNotificationParams,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.mcp import MCPToolset

from pydantic_deep._text.escapes import visible

from ._open_calls import CALL, OpenCalls
from ._questions import Asked, PausedCall, Response, question_of

ResultT = TypeVar('ResultT')

_LOGGER = logging.getLogger('pydantic_deep')

_LEVELS: Final = {
    'debug': logging.DEBUG,
    'info': logging.INFO,
    'notice': logging.INFO,
    'warning': logging.WARNING,
}
"""The levels of log messages of servers. All others are errors."""

_NO_LIMIT: Final = 365 * 24 * 3600.0
"""The limit of a call that may ask, in seconds. The time of its user does not count, so the connection has limits."""


class AskingClient(Client[Any]):
    """A client whose calls raise `Asked` where a server returns questions instead of a result."""

    async def call_tool_mcp(self, name: str, arguments: dict[str, Any], *args: Any, **kwargs: Any) -> CallToolResult:
        """Call a tool, or continue a call with the answers to its questions."""
        call = CALL.get()
        if self.initialize_result is not None:  # a protocol before 2026-07-28
            return await super().call_tool_mcp(name, arguments, *args, **{**kwargs, 'timeout': _NO_LIMIT})
        paused = None if call is None else call.paused
        if paused is None or not paused.responses:
            return await super().call_tool_mcp(name, arguments, *args, **kwargs)

        async def send(responses: InputResponses | None, state: str | None) -> CallToolResult | InputRequiredResult:
            return await self.session.call_tool(
                name, arguments, input_responses=responses, request_state=state, allow_input_required=True
            )

        responses: InputResponses = {key: _result(response) for key, response in paused.responses.items()}
        first = await self._await_with_session_monitoring(send(responses, paused.request_state))
        return await self._await_with_session_monitoring(self._drive_input_required(first, send))

    async def _drive_input_required(
        self,
        first: ResultT | InputRequiredResult,
        retry: Callable[[InputResponses | None, str | None], Coroutine[Any, Any, ResultT | InputRequiredResult]],
    ) -> ResultT:
        """Pause the call where the base class would ask at once. It repeats a call that only has to wait."""
        requests = first.input_requests if isinstance(first, InputRequiredResult) else None
        if requests and CALL.get() is not None and all(isinstance(each, ElicitRequest) for each in requests.values()):
            try:
                questions = {key: question_of(request.params) for key, request in requests.items()}
            except ValueError as error:
                raise ToolFailed(f'The server asks a question that cannot be shown: {error}') from error
            state = first.request_state if isinstance(first, InputRequiredResult) else None
            raise Asked(PausedCall(questions=questions, request_state=state))
        return await super()._drive_input_required(first, retry)


def create_toolset(
    transport: ClientTransport,
    name: str,
    calls: OpenCalls,
    *,
    on_change: Callable[[], None],
    start_seconds: float,
    call_seconds: float,
    question_seconds: float,
) -> MCPToolset[Any]:
    """Return pydantic-ai's toolset of a server.

    Args:
        transport: The connection to the server.
        name: The name of the server.
        calls: The open calls of the connection.
        on_change: Is called when the server has changed its tools or resources.
        start_seconds: How long to wait for the start of the server.
        call_seconds: How long to wait for results.
        question_seconds: How long a question is open.
    """

    async def answer(_message: str, _type: object, params: ElicitRequestParams, _context: object) -> ElicitResult:
        return _result(await calls.ask(question_of(params), timeout_seconds=question_seconds))

    async def receive(message: object) -> None:
        if isinstance(message, (ToolListChangedNotification, ResourceListChangedNotification)):
            on_change()

    async def log(message: LoggingMessageNotificationParams) -> None:
        level = _LEVELS.get(message.level, logging.ERROR)
        _LOGGER.log(level, 'The MCP server %r logs: %s', name, visible(str(message.data), one_line=True))

    client = AskingClient(
        transport,
        elicitation_handler=answer,
        message_handler=receive,
        log_handler=log,
        init_timeout=start_seconds,
        timeout=call_seconds,
    )
    # The connection caches the lists: pydantic-ai invalidates its caches only for clients that it creates.
    return MCPToolset[Any](client, id=name, tool_error_behavior='failed', cache_tools=False, cache_resources=False)


def _result(response: Response) -> ElicitResult:
    return ElicitResult.model_validate(response.model_dump())
