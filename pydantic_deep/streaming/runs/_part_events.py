"""Events of a message part, for live runs and for stored messages. Pure."""

from __future__ import annotations

from functools import cache

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError
from pydantic_ai import DeferredToolRequests
from pydantic_ai.messages import BaseToolCallPart, BaseToolReturnPart, ModelResponse, ThinkingPart
from pydantic_core import to_json

from pydantic_deep._messages.call_ids import escape_call_id
from pydantic_deep._messages.half_characters import join_halves
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
"""The tool of the subagents capability that delegates."""

WRITE_TODOS = 'write_todos'
"""The tool of the todos capability that replaces the plan."""

FILE_WRITERS = frozenset(('write_file', 'edit_file'))
"""The tools of the filesystem capability that change exactly one file, named in the call."""

CHANGERS = FILE_WRITERS | {WRITE_TODOS}
"""The tools with an additional event when they succeed."""


class _Plan(BaseModel):
    """The arguments of `write_todos`."""

    model_config = ConfigDict(defer_build=True)

    todos: list[Todo]


def args_text(args: object) -> str:
    """Return the arguments of a call: the model's own text, or its arguments object as JSON."""
    return args if isinstance(args, str) and args else render_json(args or {})


def call_event(
    part: BaseToolCallPart,
    *,
    within: str = '',
    path: tuple[str, ...] = (),
    index: int | None = None,
    thread_id: str | None = None,
) -> ToolCallEvent:
    """Return the event of a tool call.

    Args:
        part: The call.
        within: Prefix of the call id: the id of the subagent's `task` call and a slash.
        path: Names of the subagents that lead to the caller.
        index: Position of the call in its response, if its pieces were emitted before.
        thread_id: The conversation of the subagent that the call started.
    """
    intent = part.args_as_dict().get('description') if part.tool_name == TASK else None
    return ToolCallEvent(
        id=f'{within}{escape_call_id(part.tool_call_id)}',
        name=part.tool_name,
        args=args_text(part.args),
        index=index,
        path=list(path),
        intent=intent if isinstance(intent, str) else None,
        sub_agent_thread_id=thread_id,
    )


def result_event(part: BaseToolReturnPart, *, within: str = '', path: tuple[str, ...] = ()) -> ToolResultEvent:
    """Return the event of a tool result. The arguments are those of `call_event`."""
    return ToolResultEvent(
        id=f'{within}{escape_call_id(part.tool_call_id)}',
        name=part.tool_name,
        outcome=part.outcome,
        content=join_halves(part.model_response_str(wrap_if_error=False)),
        exit_code=exit_code_of(part),
        path=list(path),
        sub_agent_thread_id=thread_of(part),
    )


def thread_of(part: BaseToolReturnPart) -> str | None:
    """Return the conversation of the subagent that produced a result, or `None` if no subagent did."""
    metadata: object = part.metadata
    if part.tool_name != TASK or not isinstance(metadata, dict):
        return None
    thread_id: object = metadata.get('sub_agent_thread_id')  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped metadata of a tool
    return thread_id if isinstance(thread_id, str) else None


def change_events(call: BaseToolCallPart, result: BaseToolReturnPart, *, working_dir: str) -> list[StreamEvent]:
    """Return the changes of a successful call, derived from its arguments: the plan, or a file."""
    if call.tool_name == WRITE_TODOS:
        try:
            return [TodosEvent(todos=_Plan.model_validate(call.args_as_dict()).todos)]
        except ValidationError:  # a third-party tool of the same name
            return []
    path: object = resolved_path(result) or call.args_as_dict().get('path')
    if call.tool_name not in FILE_WRITERS or not isinstance(path, str):
        return []
    try:
        absolute = resolve_path(path, working_dir)
    except InvalidPathError:
        return []
    change = file_change_of(result)
    if change is None:  # a third-party tool, or a result of an older release
        return [FileEvent(path=absolute, change='changed')]
    kind = 'created' if change.is_new else 'changed'
    return [FileEvent(path=absolute, change=kind, added_lines=change.added_lines, removed_lines=change.removed_lines)]


def thinking_events(part: ThinkingPart, path: tuple[str, ...] = ()) -> list[StreamEvent]:
    """Return the event of a complete thought, or of its first piece. Empty if the thought is empty."""
    if not part.content and part.signature is None:
        return []
    return [ThinkingEvent(text=part.content, signature=part.signature, path=list(path))]


def approval_events(output: object) -> list[StreamEvent]:
    """Return the event for the pending calls in the output of a run, or an empty list."""
    pending = pending_approvals(output)
    return [ApprovalRequiredEvent(approvals=[approval_of(approval) for approval in pending])] if pending else []


def approval_of(pending: PendingApproval) -> Approval:
    """Return a pending call as events carry it."""
    return Approval(
        id=pending.id,
        path=list(pending.path),
        tool=pending.tool,
        args=_json_object().validate_python(dict(pending.arguments)),
        view=pending.view,
        decisions=list(pending.decisions),
    )


def output_text(output: object) -> str | None:
    """Return the output of a run as text, or as JSON if structured. `None` without output, or if calls are pending."""
    if output is None or isinstance(output, DeferredToolRequests):
        return None
    return output if isinstance(output, str) else to_json(output, fallback=repr, bytes_mode='base64').decode()


def finish_reason_of(response: ModelResponse | None, *, is_waiting: bool) -> FinishReason:
    """Return why a run ended: pending calls, or the reason of its last response. An output tool call is a `stop`."""
    if is_waiting:
        return 'tool_call'
    reason = None if response is None else response.finish_reason
    return 'stop' if reason is None or reason == 'tool_call' else reason


@cache
def _json_object() -> TypeAdapter[dict[str, JsonValue]]:
    return TypeAdapter(dict[str, JsonValue])
