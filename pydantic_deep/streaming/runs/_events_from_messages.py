"""Events of a run, derived from its messages alone. Transient events, such as a retry, are missing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import cast

from pydantic_ai import DeferredToolRequests
from pydantic_ai.messages import (
    BaseToolReturnPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)

from pydantic_deep.streaming._events import (
    EndEvent,
    ErrorEvent,
    RunStatus,
    StartEvent,
    StreamEvent,
    TextEvent,
    UsageEvent,
)

from ._part_events import (
    TASK,
    approval_events,
    call_event,
    change_events,
    finish_reason_of,
    output_text,
    result_event,
    thinking_events,
    thread_of,
)

_USAGE_FIELDS = frozenset(field.name for field in fields(UsageEvent)) - {'type'}


def project_messages(
    messages: Sequence[ModelMessage],
    *,
    since: int = 0,
    start: StartEvent | None = None,
    status: RunStatus | None = None,
    output: object = None,
    error: ErrorEvent | None = None,
    version_id: str | None = None,
    working_dir: str = '/',
) -> list[StreamEvent]:
    """Return what a run has told: a text, a call, a result as one event each, usage after each response.

    What subagents did is not in these messages; what they used is, with the result of their task.

    Args:
        messages: A history with the messages of the run at its end.
        since: How many of them were there before the run.
        start: What the run began with; by default nothing is known of it.
        status: What became of the run; `None` while it goes on, and then no end is told.
        output: What it returned: an answer, or calls that wait.
        error: What was told of its failure.
        version_id: The version that it ended with.
        working_dir: The directory that relative paths of tool calls start from.
    """
    projection = _EventBuilder(messages, working_dir)
    told: list[StreamEvent] = [start or StartEvent(), *projection.answered_before(since)]
    last = next((each for each in reversed(messages) if isinstance(each, ModelResponse)), None)
    for message in messages[since:]:
        if isinstance(message, ModelResponse):
            told += projection.of_response(message)
        else:
            has_run = message is not messages[-1] or status != 'complete'
            told += projection.of_request(message, has_run=has_run)
    if status is None:
        return told
    told += [*approval_events(output), *([] if error is None else [error])]
    has_ended_well = status in ('complete', 'awaiting_approval')
    reason = finish_reason_of(last, is_waiting=isinstance(output, DeferredToolRequests)) if has_ended_well else 'error'
    end = EndEvent(
        finish_reason=reason,
        status=status,
        version_id=version_id,
        output=output_text(output),
        usage=projection.usage,
    )
    return [*told, end]


class _EventBuilder:
    """The state between messages: calls by their ids, and the usage so far."""

    def __init__(self, messages: Sequence[ModelMessage], working_dir: str) -> None:
        self._messages = messages
        self._working_dir = working_dir
        self._calls: dict[str, ToolCallPart] = {}
        self.usage = UsageEvent()
        """The usage so far."""
        self._thread_by_call = {
            part.tool_call_id: thread_of(part)
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart) and part.tool_name == TASK
        }

    def answered_before(self, since: int) -> list[StreamEvent]:
        """Return the calls that had waited, and that the run began with."""
        before, now = self._messages[:since], self._messages[since : since + 1]
        waiting = next((each for each in reversed(before) if isinstance(each, ModelResponse)), None)
        if waiting is None:
            return []
        results = [part for request in now if isinstance(request, ModelRequest) for part in request.parts]
        answered = {part.tool_call_id for part in results if isinstance(part, ToolReturnPart)}
        calls = [part for part in waiting.parts if isinstance(part, ToolCallPart) and part.tool_call_id in answered]
        return [self._call(part) for part in calls]

    def of_response(self, response: ModelResponse) -> list[StreamEvent]:
        """Return what a response tells: its texts, its usage, its calls."""
        told: list[StreamEvent] = []
        for part in response.parts:
            match part:
                case TextPart(content=text) if text:
                    told.append(TextEvent(text=text))
                case ThinkingPart():
                    told += thinking_events(part)
                case NativeToolCallPart():
                    told.append(call_event(part))
                case NativeToolReturnPart():
                    told.append(result_event(part))
                case _:
                    pass
        used = response.usage
        self._count(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cache_read_tokens=used.cache_read_tokens,
            cache_write_tokens=used.cache_write_tokens,
            requests=1,
        )
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        return [*told, self.usage, *(self._call(part, index) for index, part in enumerate(calls))]

    def of_request(self, request: ModelRequest, *, has_run: bool) -> list[StreamEvent]:
        """Return the results in a request, and the changes that they made.

        Args:
            request: The request.
            has_run: Whether its results are of tools; at the end of a complete run they are of the output.
        """
        told: list[StreamEvent] = []
        for part in request.parts:
            if isinstance(part, ToolReturnPart):
                told.append(result_event(part))
                call = self._calls.pop(part.tool_call_id, None)
                if call is not None and part.outcome == 'success':
                    told += change_events(call, part, working_dir=self._working_dir)
                self._count(**_usage_below(part))
                self._count(tool_calls=int(has_run and part.outcome == 'success'))
        return told

    def _call(self, part: ToolCallPart, index: int | None = None) -> StreamEvent:
        self._calls[part.tool_call_id] = part
        return call_event(part, index=index, thread_id=self._thread_by_call.get(part.tool_call_id))

    def _count(self, **used: int) -> None:
        """Count what was used; it is told with the next response."""
        self.usage = replace(self.usage, **{name: getattr(self.usage, name) + n for name, n in used.items()})


def _usage_below(part: BaseToolReturnPart) -> dict[str, int]:
    """Return what a subagent used, which the result of its task carries."""
    metadata: object = part.metadata
    if thread_of(part) is None or not isinstance(metadata, dict):
        return {}
    usage = cast('dict[str, object]', metadata).get('usage')
    if not isinstance(usage, Mapping):
        return {}
    return {
        name: n
        for name, n in cast('Mapping[str, object]', usage).items()
        if isinstance(n, int) and name in _USAGE_FIELDS
    }
