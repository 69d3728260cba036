"""Events as lines of server-sent events, and the groups of events that a reader can select."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from enum import IntFlag

from ._events import (
    EndEvent,
    ErrorEvent,
    NoticeEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from ._failures import EXPECTED_ERRORS, describe_failure
from ._frames import render_frame
from ._json import render_event
from ._protocol import Encoder, Frame

NOTICE = "I'm working on it…"
"""Default text of the notice that is sent while tools run."""

_LOGGER = logging.getLogger('pydantic_deep')


class EventGroup(IntFlag):
    """Groups of events that a reader receives only on request. All readers receive all other events."""

    tool_results = 1
    """Results of tools, and the text and thinking of subagents."""
    function_calls = 2
    """Complete tool calls, without their pieces."""
    thinking = 4
    """The thinking of models, if their provider sends it."""
    call_deltas = 8
    """Pieces of tool calls that are being written."""


def groups_of(event: StreamEvent) -> EventGroup:
    """Return the groups that a reader must request to receive the event. Empty if every reader receives it."""
    match event:
        case ToolCallDeltaEvent():
            return EventGroup.call_deltas
        case ToolCallEvent():
            return EventGroup.function_calls
        case ToolResultEvent():
            return EventGroup.tool_results
        case ThinkingEvent(path=path):
            return EventGroup.thinking | (EventGroup.tool_results if path else EventGroup(0))
        case TextEvent(path=[_, *_]):
            return EventGroup.tool_results
        case _:
            return EventGroup(0)


class CallBatches:
    """Recognizes the first event of each batch of tool calls, so that a notice can announce it. Stateful."""

    def __init__(self) -> None:
        self._is_in_batch = False

    def is_start(self, event: StreamEvent) -> bool:
        """Return whether the event starts a batch of calls of the agent itself."""
        match event:
            case ToolCallDeltaEvent(index=0, id=str(), path=[]) | ToolCallEvent(index=0 | None, path=[]):
                is_start, self._is_in_batch = not self._is_in_batch, True
                return is_start
            case TextEvent(path=[]) | ToolResultEvent(path=[]):
                self._is_in_batch = False
                return False
            case _:
                return False


class EventEncoder:
    """An `Encoder` for the events themselves: the type in `event:`, the whole event as JSON in `data:`.

    The type of a call is `function_call`. Approvals and errors are always encoded.
    """

    def __init__(
        self,
        *,
        notice: str | None = NOTICE,
        tool_results: bool = False,
        function_calls: bool = False,
        thinking: bool = False,
    ) -> None:
        """Create an encoder for one stream.

        Args:
            notice: The text of a notice before each batch of tool calls. `None` disables notices.
            tool_results: Whether to encode tool results and the text of subagents.
            function_calls: Whether to encode complete tool calls.
            thinking: Whether to encode the model's thinking.
        """
        self._notice = notice
        self._selected = selected_groups(tool_results=tool_results, function_calls=function_calls, thinking=thinking)
        self._batches = CallBatches()
        self._is_over = False

    def encode(self, event: StreamEvent) -> Sequence[Frame]:
        """Return the frames of an event."""
        self._is_over = self._is_over or isinstance(event, (EndEvent, ErrorEvent))
        is_due = self._batches.is_start(event) and bool(self._notice)
        notices = [event_frame(NoticeEvent(text=self._notice or ''))] if is_due else []
        return [*notices, *([] if groups_of(event) & ~self._selected else [event_frame(event)])]

    def finish(self) -> Sequence[Frame]:
        """Return an error frame if neither an end nor an error was encoded, because the source was cut off."""
        return [] if self._is_over else [event_frame(BROKEN_OFF)]


def selected_groups(*, tool_results: bool, function_calls: bool, thinking: bool) -> EventGroup:
    """Return the groups that a reader requested."""
    selected = {
        EventGroup.tool_results: tool_results,
        EventGroup.function_calls: function_calls,
        EventGroup.thinking: thinking,
    }
    return EventGroup(sum(group for group, is_selected in selected.items() if is_selected))


BROKEN_OFF = ErrorEvent(
    kind='truncated', message='The stream ended before it was complete. The output so far is partial.', status=502
)
"""The error for a source that stops without an end."""


async def iter_lines(
    events: AsyncIterable[StreamEvent],
    *,
    encoder: Encoder | None = None,
    notice: str | None = NOTICE,
    tool_results: bool = False,
    function_calls: bool = False,
) -> AsyncGenerator[str]:
    """Yield events as text in the format of server-sent events.

    If the source raises or stops without an end, the stream ends with an error, never like one that succeeded.

    Args:
        events: The events of a run or of a provider stream.
        encoder: An encoder of another format. It selects the events itself, and the other arguments are ignored.
        notice: The text of a notice before each batch of tool calls. `None` disables notices.
        tool_results: Whether to encode tool results.
        function_calls: Whether to encode tool calls, as `event: function_call`.
    """
    line_encoder = encoder or EventEncoder(notice=notice, tool_results=tool_results, function_calls=function_calls)
    try:
        async for event in events:
            for frame in line_encoder.encode(event):
                yield render_frame(frame)
    except Exception as error:  # outermost boundary: readers must not take partial output for complete output
        if not isinstance(error, EXPECTED_ERRORS):
            _LOGGER.exception('The source of a stream failed', exc_info=error)
        for frame in line_encoder.encode(describe_failure(error)):
            yield render_frame(frame)
    for frame in line_encoder.finish():
        yield render_frame(frame)


def event_frame(event: StreamEvent) -> Frame:
    """Return the frame of an event."""
    name = 'function_call' if isinstance(event, ToolCallEvent) else event.type
    return Frame(event=name, data=render_event(event))
