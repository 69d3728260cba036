"""Turns as tasks: the extension `io.modelcontextprotocol/tasks` of the protocol 2026-07-28.

A client that declares the extension in a call receives a task instead of waiting for the run. It polls the task, answers
its approvals, and cancels it. A task is a run that the store has anyway, so any process of a server serves it.

For a client that shows forms, a task is a turn, with the id of its first run. Other clients cannot answer: for them, a
task is one run, which ends with the pending calls as its result, as without tasks.

Source: https://modelcontextprotocol.github.io/ext-tasks/specification/2026-07-28/tasks.html
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import require_client_extension
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    METHOD_NOT_FOUND,
    CancelTaskRequestParams,
    GetTaskRequestParams,
    InputRequiredResult,
    InputResponses,
    RequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.server._run_start import start_run
from pydantic_deep.server._turn_task import TurnTask, find_first_run, load_task
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.routes import _turns
from pydantic_deep.versions import TurnOptions
from pydantic_deep.views import RunState

from ._call import Call, explained
from ._elicitation import answer_form, can_ask, filled_forms, forms_of, wait_and_ask
from ._runs import run_result
from ._shapes import RunResult, tool_result

EXTENSION: Final = 'io.modelcontextprotocol/tasks'
"""The identifier of the extension."""

POLL_MS: Final = 1000
"""The interval in which clients should ask for a task, in milliseconds. With the default limit, a key can follow 20."""

Context: TypeAlias = ServerRequestContext[Any, Any]
CreatedTask: TypeAlias = dict[str, Any]
"""The result of a call that has become a task, in JSON. `ttlMs` is null, which a model would omit."""

_TaskStatus: TypeAlias = Literal['working', 'input_required', 'completed', 'cancelled']

_STATUSES: Final[Mapping[RunState, _TaskStatus]] = {
    'queued': 'working',
    'running': 'working',
    'suspended': 'working',  # a server that starts resumes it, unless the conversation has moved on
    'awaiting_approval': 'input_required',
    'complete': 'completed',
    'failed': 'completed',
    'interrupted': 'cancelled',
}
"""The status `failed` is for errors of JSON-RPC only. A failed run is a result, as for clients without tasks."""


class UpdateTaskParams(RequestParams):
    """The parameters of `tasks/update`."""

    task_id: str
    input_responses: InputResponses


def add_tasks(server: Server[Any], access: Access) -> None:
    """Declare the extension, and serve its methods for a caller."""
    server.extensions[EXTENSION] = {}
    server.add_request_handler('tasks/get', GetTaskRequestParams, partial(_handle, _get, access))
    server.add_request_handler('tasks/update', UpdateTaskParams, partial(_handle, _update, access))
    server.add_request_handler('tasks/cancel', CancelTaskRequestParams, partial(_handle, _cancel, access))


async def finish(call: Call, run_id: str, *, seconds: float) -> RunResult | InputRequiredResult | CreatedTask:
    """Return the task of a run to a client that has declared the extension. For other clients, wait for the run.

    Args:
        call: The call.
        run_id: The run, which may have ended: then it is returned. It is also returned if the client does not wait.
        seconds: The maximum time to wait for each run.
    """
    if seconds == 0 or not _has_declared(call.session):
        return await wait_and_ask(call, run_id, seconds=seconds)
    asks = can_ask(call.access, call.session)
    id = await find_first_run(call.access.state, run_id) if asks else run_id
    task = await load_task(call.access, id, follow=asks)
    described = _describe(task, asks=asks)
    if described['status'] in ('completed', 'cancelled'):
        return run_result(call.access, task.run)
    return {'resultType': 'task', **described}


def _has_declared(session: ServerSession) -> bool:
    """Return whether the client has declared the extension, in a protocol that has it."""
    capabilities = session.client_capabilities
    declared = None if capabilities is None else capabilities.extensions
    return EXTENSION in (declared or {}) and session.protocol_version in MODERN_PROTOCOL_VERSIONS


_Handle: TypeAlias = Callable[[Access, ServerSession, TurnTask, Any], Awaitable[dict[str, Any]]]


async def _handle(
    handle: _Handle,
    access: Access,
    context: Context,
    params: GetTaskRequestParams | UpdateTaskParams | CancelTaskRequestParams,
) -> dict[str, Any]:
    """Answer a request about a task of the caller."""
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:  # earlier tasks have the same methods
        raise MCPError(METHOD_NOT_FOUND, 'Method not found', data=context.method)
    require_client_extension(context, EXTENSION)
    with explained():
        if not access.has('run'):
            raise ServerError('forbidden', 'This requires a key with the scope `run`.')
        task = await load_task(access, params.task_id, follow=can_ask(access, context.session))
        return await handle(access, context.session, task, params)


async def _get(access: Access, session: ServerSession, task: TurnTask, params: object) -> dict[str, Any]:
    result, described = run_result(access, task.run), _describe(task, asks=can_ask(access, session))
    message = result.error
    if described['status'] == 'input_required':
        forms = forms_of(result.approvals)
        described['inputRequests'] = {key: _to_json(form) for key, form in forms.items()}
        message = None if forms else result.next
    elif described['status'] == 'completed':
        described['result'] = _to_json(tool_result(result))
    if task.run.state == 'suspended':
        message = result.next
    return described if message is None else {**described, 'statusMessage': message}


async def _update(access: Access, session: ServerSession, task: TurnTask, params: UpdateTaskParams) -> dict[str, Any]:
    """Answer approvals, and resume the turn after the last one.

    As the specification says, a response to a form that is not pending has no effect: it was answered already, or shows
    another call. A repeated request resumes the turn if the first one could not.
    """
    if not access.has('approve'):
        raise ServerError('forbidden', 'Answering approvals requires a key with the scope `approve`.')
    for shown, answer in filled_forms(run_result(access, task.run).approvals, params.input_responses):
        await answer_form(access, shown, answer, resume=False)
    task = await load_task(access, task.id)
    run = task.run
    if run.state == 'awaiting_approval' and run.version_id is not None and not run_result(access, run).approvals:
        await _resume(access, task, run.version_id)
    return {}


async def _resume(access: Access, task: TurnTask, version_id: str) -> None:
    """Start the run that resumes a task, unless another request has started it."""
    try:
        await start_run(access, await access.version(version_id), TurnOptions())
    except DeepAgentError:
        if (await load_task(access, task.id)).run.id == task.run.id:
            raise


async def _cancel(access: Access, session: ServerSession, task: TurnTask, params: object) -> dict[str, Any]:
    await _turns.cancel_own_run(access, task.run.id)
    return {}


def _describe(task: TurnTask, *, asks: bool) -> dict[str, Any]:
    """Return the fields that every task has."""
    state = task.run.state
    stays = (state == 'suspended' and task.run.has_moved_on) or (state == 'awaiting_approval' and not asks)
    return {
        'taskId': task.id,
        'status': 'completed' if stays else _STATUSES[state],  # only a call of a tool continues it
        'createdAt': task.created_at.isoformat(),
        'lastUpdatedAt': task.changed_at.isoformat(),
        'ttlMs': None,  # it is kept as long as its conversation
        'pollIntervalMs': POLL_MS,
    }


def _to_json(value: BaseModel) -> dict[str, Any]:
    return value.model_dump(by_alias=True, mode='json', exclude_none=True)
