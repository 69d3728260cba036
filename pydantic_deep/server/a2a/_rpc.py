"""`answer_request`: a request of JSON-RPC (A2A 1.0, "JSON-RPC Protocol Binding") and its response."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeAlias, cast

from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter
from a2a.server.context import ServerCallContext
from a2a.server.routes.common import create_event_source_response, serialize_list_tasks_response
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import ListTasksRequest, SendMessageRequest, SendMessageResponse
from a2a.utils.error_handlers import build_error_details
from a2a.utils.errors import (
    JSON_RPC_ERROR_CODE_MAP,
    A2AError,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    MethodNotFoundError,
    VersionNotSupportedError,
)
from a2a.utils.json_utils import dumps
from a2a.utils.proto_utils import to_stream_response
from fastapi import Request, Response
from fastapi.responses import JSONResponse
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message

from pydantic_deep.server.http._json_route import parse_json

from ._handler import AgentHandler
from ._updates import Update

RequestId: TypeAlias = str | int | None
"""The id of a request, which its response repeats."""

_HANDLERS: Final[Mapping[str, str]] = {
    'SendMessage': 'on_message_send',
    'SendStreamingMessage': 'on_message_send_stream',
    'SubscribeToTask': 'on_subscribe_to_task',
    'GetTask': 'on_get_task',
    'ListTasks': 'on_list_tasks',
    'CancelTask': 'on_cancel_task',
    'GetExtendedAgentCard': 'on_get_extended_agent_card',
}
"""The operation of each method, apart from those of push notifications."""


_ANY_STATE: Final = (None, 0, 'TASK_STATE_UNSPECIFIED')
"""The values of a filter that selects tasks in any state."""


async def answer_request(request: Request, handler: AgentHandler, *, shutdown_seconds: float) -> Response:
    """Return the response to a request of A2A 1.0 or 0.3. Errors are errors of JSON-RPC, with HTTP 200.

    Args:
        request: The request.
        handler: The operations of the agent.
        shutdown_seconds: How long a stream may last after the server is told to stop.
    """
    request_id: RequestId = None
    try:
        message = _parse(await request.body())
        request_id = _id_in(message)
        method = _check(message)
        if method in JSONRPC03Adapter.METHOD_TO_MODEL:
            older: Any = JSONRPC03Adapter(handler, shutdown_grace_period=shutdown_seconds)
            return await older.handle_request(request_id, method, message, request)
        params = _params(message, method)
        _check_version(request.headers.get('a2a-version'))
        operation: Any = getattr(handler, _HANDLERS.get(method, 'on_create_task_push_notification_config'))
        answer: Any = operation(params, ServerCallContext())
        if isinstance(answer, AsyncGenerator):
            updates = cast('AsyncGenerator[Update]', answer)
            events = _events(await anext(updates), updates, request_id)  # a refusal is a response, and not an event
            return create_event_source_response(events, shutdown_grace_period=shutdown_seconds)
        return JSONResponse({'jsonrpc': '2.0', 'id': request_id, 'result': _to_json(params, await answer)})
    except A2AError as error:
        return JSONResponse(_error(request_id, error))


def _parse(body: bytes) -> dict[str, Any]:
    try:
        message = parse_json(body)
    except json.JSONDecodeError as error:
        raise JSONParseError(f'The body is not valid JSON: {error.msg}.') from None
    if not isinstance(message, dict):
        raise InvalidRequestError('A request is a JSON object. Batches are not supported.')
    return cast('dict[str, Any]', message)


def _id_in(message: Mapping[str, Any]) -> RequestId:
    id = message.get('id')
    return id if isinstance(id, str | int) and not isinstance(id, bool) else None


def _check(message: Mapping[str, Any]) -> str:
    """Check the members of a request, and return its method."""
    method = message.get('method')
    if message.get('jsonrpc') != '2.0' or not isinstance(method, str):
        raise InvalidRequestError('A request has `"jsonrpc": "2.0"` and the name of a `method`.')
    if message.get('id') is not None and _id_in(message) is None:
        raise InvalidRequestError('The `id` of a request is a string or a whole number.')
    return method


def _check_version(version: str | None) -> None:
    """Check the header of a method that only A2A 1 has. Without the header, its name says which version is meant."""
    if version and version.partition('.')[0] != '1':
        raise VersionNotSupportedError(f'`A2A-Version` is {version[:20]!r}. This method belongs to version 1.0.')


def _params(message: Mapping[str, Any], method: str) -> Message:
    model = JsonRpcDispatcher.METHOD_TO_MODEL.get(method)
    if model is None:
        raise MethodNotFoundError(f'There is no such method. Methods: {", ".join(_HANDLERS)}.')
    params = message.get('params', {})
    if not isinstance(params, dict):
        raise InvalidParamsError('The `params` of a request are a JSON object.')
    fields = cast('dict[str, Any]', params)
    try:
        request = ParseDict(fields, model(), ignore_unknown_fields=True)
    except (ParseError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise InvalidParamsError(
            f'The `params` are invalid: {str(error).rstrip(".")}. Compare them with the specification.'
        ) from None
    if isinstance(request, ListTasksRequest) and not request.status and fields.get('status') not in _ANY_STATE:
        # An unknown name counts as an unknown field, without which the list would have all tasks.
        raise InvalidParamsError('`status` is not the name of a state, such as `TASK_STATE_WORKING`.')
    return request


def _to_json(params: Message, result: Any) -> dict[str, Any]:
    if isinstance(params, ListTasksRequest):
        return serialize_list_tasks_response(result, params.include_artifacts)
    return MessageToDict(SendMessageResponse(task=result) if isinstance(params, SendMessageRequest) else result)


async def _events(
    first: Update, updates: AsyncGenerator[Update], request_id: RequestId
) -> AsyncGenerator[dict[str, str]]:
    """Yield updates as server-sent events. A failure is the last one."""
    async with aclosing(updates):
        yield _event(first, request_id)
        try:
            async for update in updates:
                yield _event(update, request_id)
        except A2AError as error:
            yield {'event': 'error', 'data': dumps(_error(request_id, error))}


def _event(update: Update, request_id: RequestId) -> dict[str, str]:
    result = MessageToDict(to_stream_response(update))
    return {'data': dumps({'jsonrpc': '2.0', 'id': request_id, 'result': result})}


def _error(request_id: RequestId, error: A2AError) -> dict[str, Any]:
    code = JSON_RPC_ERROR_CODE_MAP[type(error)]
    described = {'code': code, 'message': str(error), 'data': build_error_details(error)}
    return {'jsonrpc': '2.0', 'id': request_id, 'error': described}
