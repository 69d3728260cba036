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
"""The text of a notice while tools run."""

_LOGGER = logging.getLogger('pydantic_deep')


class EventGroup(IntFlag):
    """Groups of events that a reader gets only on request. All other events are for every reader."""

    tool_results = 1
    """Results of tools, and the text and thoughts of subagents."""
    function_calls = 2
    """Whole tool calls."""
    thinking = 4
    """Thoughts of models."""
    call_deltas = 8
    """Pieces of tool calls."""


def groups_of(event: StreamEvent) -> EventGroup:
    """Return the groups that a reader has to request to get the event; none if every reader gets it."""
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
    """Recognizes the first event of each batch of tool calls, which a notice can announce. It has state."""

    def __init__(self) -> None:
        self._is_in_batch = False

    def is_start(self, event: StreamEvent) -> bool:
        """Return whether a batch of calls of the agent itself begins with the event."""
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
        """Begin a stream.

        Args:
            notice: The text of a notice before each batch of tool calls; `None` for no notices.
            tool_results: Whether to encode results, and the text of subagents.
            function_calls: Whether to encode whole calls.
            thinking: Whether to encode thoughts of the model.
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
        """Return an error if no end and no error was encoded: the source has broken off."""
        return [] if self._is_over else [event_frame(BROKEN_OFF)]


def selected_groups(*, tool_results: bool, function_calls: bool, thinking: bool) -> EventGroup:
    """Return the groups that a reader has requested."""
    selected = {
        EventGroup.tool_results: tool_results,
        EventGroup.function_calls: function_calls,
        EventGroup.thinking: thinking,
    }
    return EventGroup(sum(group for group, is_selected in selected.items() if is_selected))


BROKEN_OFF = ErrorEvent(
    kind='truncated', message='The stream broke off before its end. What was told is not all of it.', status=502
)
"""The error of a source that stops without an end."""


async def iter_lines(
    events: AsyncIterable[StreamEvent],
    *,
    encoder: Encoder | None = None,
    notice: str | None = NOTICE,
    tool_results: bool = False,
    function_calls: bool = False,
) -> AsyncGenerator[str]:
    """Yield server-sent events as text.

    A source that raises, or stops without an end, ends with an error and never like one that succeeded.

    Args:
        events: The events of a run, or of a provider's stream.
        encoder: An encoder of another format, which decides itself what to encode: the other arguments are unused.
        notice: The text of a notice before each batch of tool calls; `None` for no notices.
        tool_results: Whether to encode results of tools.
        function_calls: Whether to encode tool calls, as `event: function_call`.
    """
    line_encoder = encoder or EventEncoder(notice=notice, tool_results=tool_results, function_calls=function_calls)
    try:
        async for event in events:
            for frame in line_encoder.encode(event):
                yield render_frame(frame)
    except Exception as error:  # the outermost edge: whoever reads must not take what was told for all of it
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
