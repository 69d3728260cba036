"""Events of a part of a message, for live runs and for stored messages. Pure."""

from __future__ import annotations

from functools import cache

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError
from pydantic_ai import DeferredToolRequests
from pydantic_ai.messages import (
    BaseToolCallPart,
    BaseToolReturnPart,
    ModelResponse,
    ThinkingPart,
)
from pydantic_core import to_json

from pydantic_deep._messages.result_metadata import exit_code_of, file_change_of, resolved_path
from pydantic_deep.approvals import PendingApproval, pending_approvals
from pydantic_deep.streaming._events import (
    Approval,
    ApprovalRequiredEvent,
    FileEvent,
    FinishReason,
    StreamEvent,
    ThinkingEvent,
    TodosEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from pydantic_deep.streaming._json import render_json
from pydantic_deep.todos import Todo
from pydantic_deep_backends.errors import InvalidPathError
from pydantic_deep_backends.paths import resolve_path

TASK = 'task'
"""The tool that delegates, of the subagents room."""

WRITE_TODOS = 'write_todos'
"""The tool that replaces the plan, of the todos room."""

FILE_WRITERS = frozenset(('write_file', 'edit_file'))
"""The tools of the filesystem room whose calls name the one file that they change."""

CHANGERS = FILE_WRITERS | {WRITE_TODOS}
"""The tools whose success is told by an event of its own."""


class _Plan(BaseModel):
    """The arguments of `write_todos`."""

    model_config = ConfigDict(defer_build=True)

    todos: list[Todo]


def args_text(args: object) -> str:
    """Return the arguments of a call as the model wrote them: its own text, or the JSON of what it gave as an object."""
    return args if isinstance(args, str) and args else render_json(args or {})


def escaped_id(tool_call_id: str) -> str:
    """Return an id as it stands in that of a `PendingApproval`, where slashes part the ids on the way."""
    return tool_call_id.replace('%', '%25').replace('/', '%2F')


def call_event(
    part: BaseToolCallPart,
    *,
    within: str = '',
    path: tuple[str, ...] = (),
    index: int | None = None,
    thread_id: str | None = None,
) -> ToolCallEvent:
    """Return what is told of a call.

    Args:
        part: The call.
        within: What stands before its id: that of the `task` call whose subagent calls, and a slash.
        path: The subagents that lead to who calls.
        index: Which call of its response it is, where that was told before.
        thread_id: The conversation of the subagent that the call began.
    """
    intent = part.args_as_dict().get('description') if part.tool_name == TASK else None
    return ToolCallEvent(
        id=f'{within}{escaped_id(part.tool_call_id)}',
        name=part.tool_name,
        args=args_text(part.args),
        index=index,
        path=list(path),
        intent=intent if isinstance(intent, str) else None,
        sub_agent_thread_id=thread_id,
    )


def result_event(part: BaseToolReturnPart, *, within: str = '', path: tuple[str, ...] = ()) -> ToolResultEvent:
    """Return what is told of a result; the arguments are as in `call_event`."""
    return ToolResultEvent(
        id=f'{within}{escaped_id(part.tool_call_id)}',
        name=part.tool_name,
        outcome=part.outcome,
        content=part.model_response_str(wrap_if_error=False),
        exit_code=exit_code_of(part),
        path=list(path),
        sub_agent_thread_id=thread_of(part),
    )


def thread_of(part: BaseToolReturnPart) -> str | None:
    """Return the conversation of the subagent that a result comes from; `None` if it comes from none."""
    metadata: object = part.metadata
    if part.tool_name != TASK or not isinstance(metadata, dict):
        return None
    thread_id: object = metadata.get('sub_agent_thread_id')  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - what a tool has put there
    return thread_id if isinstance(thread_id, str) else None


def change_events(call: BaseToolCallPart, result: BaseToolReturnPart, *, working_dir: str) -> list[StreamEvent]:
    """Return what a call that succeeded has changed, by its arguments: the plan, or a file."""
    if call.tool_name == WRITE_TODOS:
        try:
            return [TodosEvent(todos=_Plan.model_validate(call.args_as_dict()).todos)]
        except ValidationError:  # a tool of somebody else's, by that name
            return []
    path: object = resolved_path(result) or call.args_as_dict().get('path')
    if call.tool_name not in FILE_WRITERS or not isinstance(path, str):
        return []
    try:
        absolute = resolve_path(path, working_dir)
    except InvalidPathError:
        return []
    change = file_change_of(result)
    if change is None:  # a tool of somebody else's, or a result of an older release
        return [FileEvent(path=absolute, change='changed')]
    kind = 'created' if change.is_new else 'changed'
    return [FileEvent(path=absolute, change=kind, added_lines=change.added_lines, removed_lines=change.removed_lines)]


def thinking_events(part: ThinkingPart, path: tuple[str, ...] = ()) -> list[StreamEvent]:
    """Return what a whole thought, or the beginning of one, tells: nothing if it is empty."""
    if not part.content and part.signature is None:
        return []
    return [ThinkingEvent(text=part.content, signature=part.signature, path=list(path))]


def approval_events(output: object) -> list[StreamEvent]:
    """Return the event of what waits in the output of a run, or nothing."""
    pending = pending_approvals(output)
    return [ApprovalRequiredEvent(approvals=[approval_of(each) for each in pending])] if pending else []


def approval_of(pending: PendingApproval) -> Approval:
    """Return a call that waits as events carry it."""
    return Approval(
        id=pending.id,
        path=list(pending.path),
        tool=pending.tool,
        args=_json_object().validate_python(dict(pending.arguments)),
        view=pending.view,
        decisions=list(pending.decisions),
    )


def output_text(output: object) -> str | None:
    """Return the answer of a run as text, JSON if it is structured; `None` if calls wait, or there is nothing."""
    if output is None or isinstance(output, DeferredToolRequests):
        return None
    return output if isinstance(output, str) else to_json(output, fallback=repr, bytes_mode='base64').decode()


def finish_reason_of(response: ModelResponse | None, *, is_waiting: bool) -> FinishReason:
    """Return why a run ended: calls wait, or what its last response says. A call that gave the output is a good end."""
    if is_waiting:
        return 'tool_call'
    reason = None if response is None else response.finish_reason
    return 'stop' if reason is None or reason == 'tool_call' else reason


@cache
def _json_object() -> TypeAdapter[dict[str, JsonValue]]:
    return TypeAdapter(dict[str, JsonValue])
