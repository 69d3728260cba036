"""The events of a run as those of pydantic-ai, which the encoders of both protocols read.

A run that this process executes is encoded from the events of pydantic-ai themselves. For a run of another process there
is only the log, whose events are translated back. Results of tools are text there, and files of the model's responses and
custom events of tools are missing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace

from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
)

from pydantic_deep._messages.call_ids import unescape_call_id
from pydantic_deep.server.runs._run_log import LogDiscardedError
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.streaming import (
    EndEvent,
    ErrorEvent,
    NoticeEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
    decode_entry,
)

from ._extra_events import LoggedEvent, PublicError

TAKEN_OVER = ErrorEvent(
    kind='run_suspended',
    message='The worker of the run or this server has stopped, and another one continues it. Load the conversation again.',
    status=503,
)
"""The error after the events of a worker that crashed: those of the next one are divided differently."""


async def logged_events(run: ServerRun) -> AsyncGenerator[AgentStreamEvent | LoggedEvent]:
    """Yield the events of a run from its log, until it has ended.

    Raises:
        PublicError: The run failed, or another worker continues it.
        RunCancelled: The run was cancelled.
    """
    events, log, has_events = _NativeEvents(), run.log, False
    while log is not None and not has_events:  # the log of a queued run is replaced when a worker claims the run
        with suppress(LogDiscardedError):
            async with aclosing(log.tail()) as entries:
                async for _, entry in entries:
                    has_events, event = True, decode_entry(entry)
                    for native in events.translate(event):
                        yield native
                    if isinstance(event, EndEvent):
                        return
        log = log.successor
    raise PublicError(TAKEN_OVER)


@dataclass(kw_only=True)
class _NativeEvents:
    """Translates the events of one run. Stateful."""

    open: TextPart | ThinkingPart | None = None
    """The text or the thinking that is being written."""
    parts: int = 0
    """The number of parts so far."""
    written: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    """The calls that are being written, by their position in the response: the index of the part, and the id."""

    def translate(self, event: StreamEvent) -> list[AgentStreamEvent | LoggedEvent]:
        """Return the events of pydantic-ai for an event of the agent itself, or the event as it is.

        Raises:
            PublicError: The event is an error.
            RunCancelled: The event is a cancellation.
        """
        match event:
            case TextEvent(path=[]):
                part = TextPart(event.text)
                return self._write(part, TextPartDelta(content_delta=event.text))
            case ThinkingEvent(path=[]):
                thinking = ThinkingPart(event.text, signature=event.signature)
                delta = ThinkingPartDelta(content_delta=event.text, signature_delta=event.signature)
                return self._write(thinking, delta)
            case ToolCallDeltaEvent(path=[]):
                return self._write_call(event)
            case ToolCallEvent(path=[]):
                return self._call(event)
            case ToolResultEvent(path=[]):
                part = ToolReturnPart(event.name, event.content, unescape_call_id(event.id), outcome=event.outcome)
                return [FunctionToolResultEvent(part)]
            case TextEvent() | ThinkingEvent() | ToolCallDeltaEvent() | ToolCallEvent() | NoticeEvent():
                return []  # of a subagent, whose work is not in these streams
            case ErrorEvent(kind='cancelled'):
                raise RunCancelled(event.message)
            case ErrorEvent():
                raise PublicError(event)
            case UsageEvent() | EndEvent():  # the end of a response
                return [*self._end_part(), LoggedEvent(event)]
            case _:
                return [LoggedEvent(event)]

    def _write(
        self, part: TextPart | ThinkingPart, delta: TextPartDelta | ThinkingPartDelta
    ) -> list[AgentStreamEvent | LoggedEvent]:
        if self.open is not None and self.open.part_kind == part.part_kind:
            self.open = replace(part, content=self.open.content + part.content)
            return [PartDeltaEvent(index=self.parts - 1, delta=delta)]
        ended = self._end_part()
        self.open = part
        return [*ended, self._start(part)]

    def _write_call(self, event: ToolCallDeltaEvent) -> list[AgentStreamEvent | LoggedEvent]:
        if event.name is not None:
            ended, id = self._end_part(), unescape_call_id(event.id or '')
            started = self._start(ToolCallPart(event.name, event.args or None, tool_call_id=id))
            self.written[event.index] = started.index, id
            return [*ended, started]
        index, id = self.written[event.index]
        return [PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=event.args, tool_call_id=id))]

    def _call(self, event: ToolCallEvent) -> list[AgentStreamEvent | LoggedEvent]:
        part = ToolCallPart(event.name, event.args, tool_call_id=unescape_call_id(event.id))
        written = None if event.index is None else self.written.pop(event.index, None)
        started = [] if written is not None else [*self._end_part(), self._start(part)]
        index = self.parts - 1 if written is None else written[0]
        return [*started, PartEndEvent(index=index, part=part), FunctionToolCallEvent(part, args_valid=True)]

    def _start(self, part: TextPart | ThinkingPart | ToolCallPart) -> PartStartEvent:
        self.parts += 1
        return PartStartEvent(index=self.parts - 1, part=part)

    def _end_part(self) -> list[AgentStreamEvent]:
        part, self.open = self.open, None
        return [] if part is None else [PartEndEvent(index=self.parts - 1, part=part)]
