"""Derive the events of a run from its messages alone. Transient events, such as retries, are missing. Pure."""

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
    """Return the events of a run: one per text, call and result, and usage after each response.

    The messages do not contain the work of subagents. Their usage is included: it comes with the result of their task.

    Args:
        messages: A history that ends with the messages of the run.
        since: The number of messages before the run.
        start: The start event of the run. By default, an event without details.
        status: How the run ended. `None` while it is running; no end is emitted then.
        output: The output of the run: an answer, or pending calls.
        error: The error event, if the run failed.
        version_id: The version that the run ended with.
        working_dir: The directory that relative paths in tool calls are resolved against.
    """
    builder = _EventBuilder(messages, working_dir)
    events: list[StreamEvent] = [start or StartEvent(), *builder.answered_before(since)]
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    for message in messages[since:]:
        if isinstance(message, ModelResponse):
            events += builder.of_response(message)
        else:
            has_run = message is not messages[-1] or status != 'complete'
            events += builder.of_request(message, has_run=has_run)
    if status is None:
        return events
    events += [*approval_events(output), *([] if error is None else [error])]
    has_ended_well = status in ('complete', 'awaiting_approval')
    reason = finish_reason_of(last, is_waiting=isinstance(output, DeferredToolRequests)) if has_ended_well else 'error'
    end = EndEvent(
        finish_reason=reason,
        status=status,
        version_id=version_id,
        output=output_text(output),
        usage=builder.usage,
    )
    return [*events, end]


class _EventBuilder:
    """State between messages: calls by id, and the usage so far."""

    def __init__(self, messages: Sequence[ModelMessage], working_dir: str) -> None:
        self._messages = messages
        self._working_dir = working_dir
        self._calls: dict[str, ToolCallPart] = {}
        self.usage = UsageEvent()
        """The cumulative usage of the run."""
        self._thread_by_call = {
            part.tool_call_id: thread_of(part)
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart) and part.tool_name == TASK
        }

    def answered_before(self, since: int) -> list[StreamEvent]:
        """Return the pending calls that were answered at the start of the run."""
        before, now = self._messages[:since], self._messages[since : since + 1]
        pending_response = next((message for message in reversed(before) if isinstance(message, ModelResponse)), None)
        if pending_response is None:
            return []
        results = [part for request in now if isinstance(request, ModelRequest) for part in request.parts]
        answered = {part.tool_call_id for part in results if isinstance(part, ToolReturnPart)}
        calls = [
            part for part in pending_response.parts if isinstance(part, ToolCallPart) and part.tool_call_id in answered
        ]
        return [self._call(part) for part in calls]

    def of_response(self, response: ModelResponse) -> list[StreamEvent]:
        """Return the events of a response: its texts, its usage, its calls."""
        events: list[StreamEvent] = []
        for part in response.parts:
            match part:
                case TextPart(content=text) if text:
                    events.append(TextEvent(text=text))
                case ThinkingPart():
                    events += thinking_events(part)
                case NativeToolCallPart():
                    events.append(call_event(part))
                case NativeToolReturnPart():
                    events.append(result_event(part))
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
        return [*events, self.usage, *(self._call(part, index) for index, part in enumerate(calls))]

    def of_request(self, request: ModelRequest, *, has_run: bool) -> list[StreamEvent]:
        """Return the results in a request, and the changes that the calls made.

        Args:
            request: The request.
            has_run: Whether tools produced its results. At the end of a complete run, they belong to the output.
        """
        events: list[StreamEvent] = []
        for part in request.parts:
            if isinstance(part, ToolReturnPart):
                events.append(result_event(part))
                call = self._calls.pop(part.tool_call_id, None)
                if call is not None and part.outcome == 'success':
                    events += change_events(call, part, working_dir=self._working_dir)
                self._count(**_usage_below(part))
                self._count(tool_calls=int(has_run and part.outcome == 'success'))
        return events

    def _call(self, part: ToolCallPart, index: int | None = None) -> StreamEvent:
        self._calls[part.tool_call_id] = part
        return call_event(part, index=index, thread_id=self._thread_by_call.get(part.tool_call_id))

    def _count(self, **used: int) -> None:
        """Add to the usage, which is emitted after the next response."""
        self.usage = replace(self.usage, **{name: getattr(self.usage, name) + n for name, n in used.items()})


def _usage_below(part: BaseToolReturnPart) -> dict[str, int]:
    """Return the usage of a subagent, which the result of its task carries."""
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
