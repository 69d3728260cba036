"""Events as lines of server-sent events: what a person who reads along should see, unless more is asked for."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Sequence

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
from ._failures import FORESEEN, describe_failure
from ._frames import render_frame
from ._json import render_event
from ._protocol import Encoder, Frame

NOTICE = "I'm working on it…"
"""What is shown while tools run."""

_LOGGER = logging.getLogger('pydantic_deep')


class EventEncoder:
    """An `Encoder` that tells events as they are: the type in `event:`, all of it as JSON in `data:`.

    A call is told as `function_call`. Approvals and errors are always told.
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
            notice: What is told once for each batch of tool calls; `None` for nothing.
            tool_results: Whether results are told, and what subagents say on their way to them.
            function_calls: Whether calls are told, whole.
            thinking: Whether it is told what the model thinks.
        """
        self._notice = notice
        self._tool_results = tool_results
        self._function_calls = function_calls
        self._thinking = thinking
        self._is_noticed = False
        self._is_over = False

    def encode(self, event: StreamEvent) -> Sequence[Frame]:
        """Return the frames of an event."""
        self._is_over = self._is_over or isinstance(event, (EndEvent, ErrorEvent))
        notices = [_frame(NoticeEvent(text=self._notice or ''))] if self._is_due(event) else []
        return [*notices, *([_frame(event)] if self._shows(event) else [])]

    def finish(self) -> Sequence[Frame]:
        """Return an error if no end and no error was told: the source has broken off."""
        return [] if self._is_over else [_frame(BROKEN_OFF)]

    def _shows(self, event: StreamEvent) -> bool:
        match event:
            case ToolCallDeltaEvent():
                return False
            case ToolCallEvent():
                return self._function_calls
            case ToolResultEvent():
                return self._tool_results
            case ThinkingEvent(path=path):
                return self._thinking and (self._tool_results or not path)
            case TextEvent(path=path):
                return self._tool_results or not path
            case _:
                return True

    def _is_due(self, event: StreamEvent) -> bool:
        """Return whether a batch of calls begins, of which nobody was told yet."""
        match event:
            case ToolCallDeltaEvent(index=0, id=str(), path=[]) | ToolCallEvent(index=0 | None, path=[]):
                is_due = bool(self._notice) and not self._is_noticed
                self._is_noticed = True
                return is_due
            case TextEvent(path=[]) | ToolResultEvent(path=[]):
                self._is_noticed = False
                return False
            case _:
                return False


BROKEN_OFF = ErrorEvent(
    kind='truncated', message='The stream broke off before its end. What was told is not all of it.', status=502
)
"""What is told where a source ends without an end."""


async def iter_lines(
    events: AsyncIterable[StreamEvent],
    *,
    encoder: Encoder | None = None,
    notice: str | None = NOTICE,
    tool_results: bool = False,
    function_calls: bool = False,
) -> AsyncGenerator[str]:
    """Yield server-sent events as text, ready to be sent.

    A source that fails, or breaks off, is told as an error and never as a normal end.

    Args:
        events: What a run tells, or what a provider said.
        encoder: Speaks the format of a provider; then what is shown is its business, and the rest of these not used.
        notice: What is told while tools run, once for each batch of calls; `None` for nothing.
        tool_results: Whether results of tools are told.
        function_calls: Whether calls of tools are told, as `event: function_call`.
    """
    line_encoder = encoder or EventEncoder(notice=notice, tool_results=tool_results, function_calls=function_calls)
    try:
        async for event in events:
            for frame in line_encoder.encode(event):
                yield render_frame(frame)
    except Exception as error:  # the outermost edge: whoever reads must not take what was told for all of it
        if not isinstance(error, FORESEEN):
            _LOGGER.exception('The source of a stream failed', exc_info=error)
        for frame in line_encoder.encode(describe_failure(error)):
            yield render_frame(frame)
    for frame in line_encoder.finish():
        yield render_frame(frame)


def _frame(event: StreamEvent) -> Frame:
    name = 'function_call' if isinstance(event, ToolCallEvent) else event.type
    return Frame(event=name, data=render_event(event))
