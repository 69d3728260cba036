"""The part of a stream that clients of a provider's API receive: text, and calls that the client must answer.

Tool activity of a run is hidden from them. A pending approval is encoded as a call of `approval_required`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from pydantic_deep.streaming._events import (
    Approval,
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    FinishReason,
    RetriedEvent,
    StartEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from pydantic_deep.streaming._frames import render_frames
from pydantic_deep.streaming._json import render_json
from pydantic_deep.streaming._lines import BROKEN_OFF
from pydantic_deep.streaming._protocol import Frame

from ._text_pieces import MARK, TextPieces, split_at_mark

Json: TypeAlias = dict[str, JsonValue]
"""A JSON object."""

APPROVAL_REQUIRED = 'approval_required'
"""The name of the call that asks a client for an approval."""

VOID_NOTICE = '\n\n[Discard the text above: the answer starts again.]\n\n'
"""Follows text that became void, because no provider's format can retract text."""

SEPARATOR = '\n\n'
"""The separator between two paragraphs."""

INTERRUPTED = ErrorEvent(
    kind='interrupted', message='The run ended before its answer. Completed work is preserved.', status=500
)
"""The error for an unsuccessful end without a preceding error."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that the client must answer."""

    id: str
    name: str
    args: str
    """The arguments: JSON, unless the model made a mistake."""

    @property
    def args_object(self) -> Json:
        """The arguments as an object. Invalid arguments are stored under `INVALID_JSON`, as in pydantic-ai."""
        try:
            args: JsonValue = from_json(self.args or '{}')
        except ValueError:
            args = None
        return args if isinstance(args, dict) else {'INVALID_JSON': self.args}


def approval_call(approval: Approval) -> Call:
    """Return the call that asks a client for an approval."""
    args: Json = {
        'approval_id': approval.id,
        'tool': approval.tool,
        'arguments': approval.args,
        'path': [*approval.path],
        'view': approval.view.model_dump(mode='json'),
    }
    return Call(id=approval.id, name=APPROVAL_REQUIRED, args=render_json(args))


class AnswerText:
    """Accumulates the text of an answer. Texts before and after a call are separate paragraphs."""

    def __init__(self) -> None:
        self._pieces = TextPieces()
        self._now = TextPieces()
        self._before = ''
        self._needs_separator = False

    @property
    def text(self) -> str:
        """The whole text so far."""
        return self._pieces.text

    def add(self, text: str) -> str:
        """Add a piece, and return it with the separator that precedes it, if any."""
        piece = SEPARATOR + text if self._needs_separator else text
        self._needs_separator = False
        self._now.append(text)
        self._pieces.append(piece)
        return piece

    def add_json(self, text: bytes) -> None:
        """Add a piece that is a JSON string and continues the piece before."""
        self._now.append_json(text)
        self._pieces.append_json(text)

    def start_paragraph(self) -> None:
        """Start a new paragraph with the next piece, because a call ended."""
        if self._now:
            self._before, self._now = self._now.text, TextPieces()
        self._needs_separator = bool(self._pieces)

    def void(self, text: str) -> None:
        """Remove void text from the end."""
        rest = self.text.removesuffix(text).removesuffix(SEPARATOR)
        self._pieces, self._now = TextPieces(rest), TextPieces()
        self._needs_separator = bool(rest)

    def mark_void(self) -> str:
        """Mark the text so far as void, and return the notice."""
        self._now = TextPieces()
        self._pieces.append(VOID_NOTICE)
        return VOID_NOTICE

    def rest_of(self, output: str | None) -> str:
        """Return the output of a run if no text event contained it, as for structured output."""
        return '' if not output or self._now or output == self._before else output


class AnswerEncoder(ABC):
    """An `Encoder` for clients of one provider's API. Selects the content; subclasses implement the format."""

    def __init__(
        self, *, model: str | None = None, id: str | None = None, tool_calls: bool = False, thinking: bool = False
    ) -> None:
        """Create an encoder for one stream.

        Args:
            model: The name of the model. Defaults to that of the stream.
            id: The id of the answer. Defaults to that of the stream.
            tool_calls: Whether to encode tool calls because the client answers them, as in a relayed provider stream.
                The calls of a run are answered here.
            thinking: Whether to encode the model's thinking, if the format can represent it.
        """
        self._model = model
        self._id = id
        self._tool_calls = tool_calls
        self._thinking = thinking
        self._answer = AnswerText()
        self._usage = UsageEvent()
        self._has_begun = False
        self._has_calls = False
        self._end: EndEvent | None = None
        self._has_failed = False
        self._around_text: tuple[bytes, bytes] | None = None

    @property
    def text(self) -> str:
        """The text of the answer that the client received so far."""
        return self._answer.text

    def encode(self, event: StreamEvent) -> Sequence[Frame]:
        """Return the frames of an event, none after the end or an error."""
        self._around_text = None
        if self._end is not None or self._has_failed:
            return []
        match event:
            case StartEvent() if not self._has_begun:
                return self._begin(event)
            case TextEvent(text=text, path=[]):
                return self._encode_text(self._answer.add(text))
            case ThinkingEvent(path=[]) if self._thinking:
                return [*self._start_if_needed(), *self._thinking_frames(event)]
            case ToolCallEvent(path=[]) if self._tool_calls:
                return self._encode_call(Call(id=event.id, name=event.name, args=event.args))
            case ToolResultEvent(path=[]):
                self._answer.start_paragraph()
                return []
            case RetriedEvent(path=[], void_text=void) if void:
                return self._encode_text(self._answer.mark_void())
            case ApprovalRequiredEvent(approvals=approvals):
                return [frame for approval in approvals for frame in self._encode_call(approval_call(approval))]
            case UsageEvent():
                self._usage = event
                return []
            case ErrorEvent():
                return self._fail(event)
            case EndEvent():
                return self._finish_with(event)
            case _:
                return []

    def render_text(self, text: bytes) -> bytes:
        """Return the rendered frames of a `TextEvent` of the agent itself, whose text is given as JSON.

        A text after a text is inserted into a frame that was rendered once.
        """
        if self._around_text is None:
            frames = self.encode(TextEvent(text=json.loads(text)))
            self._around_text = split_at_mark(self._text_frames(MARK)) if frames else None
            return render_frames(frames)
        self._answer.add_json(text)
        before, after = self._around_text
        return b'%b%b%b' % (before, text, after)

    def finish(self) -> Sequence[Frame]:
        """Return the frames that close the stream, or an error if there was no end."""
        if self._has_failed:
            return []
        return self._fail(BROKEN_OFF) if self._end is None else self._close_frames()

    def _begin(self, start: StartEvent) -> list[Frame]:
        self._has_begun = True
        self._id = self._id or start.id
        self._model = self._model or start.model
        return self._start_frames()

    def _start_if_needed(self) -> list[Frame]:
        return [] if self._has_begun else self._begin(StartEvent())

    def _encode_text(self, text: str) -> list[Frame]:
        return [*self._start_if_needed(), *self._text_frames(text)]

    def _encode_call(self, call: Call) -> list[Frame]:
        self._has_calls = True
        return [*self._start_if_needed(), *self._call_frames(call)]

    def _fail(self, error: ErrorEvent) -> list[Frame]:
        self._has_failed = True
        return self._error_frames(error)

    def _finish_with(self, end: EndEvent) -> list[Frame]:
        if end.finish_reason == 'error' or end.status in ('failed', 'interrupted'):
            return self._fail(INTERRUPTED)
        rest = self._answer.rest_of(end.output)
        frames = self._encode_text(self._answer.add(rest)) if rest else self._start_if_needed()
        self._end = end
        return [*frames, *self._end_frames('tool_call' if self._has_calls else end.finish_reason)]

    @abstractmethod
    def _start_frames(self) -> list[Frame]: ...

    @abstractmethod
    def _text_frames(self, text: str) -> list[Frame]:
        """Return the frames of a text. After another text, this changes nothing in the encoder."""

    @abstractmethod
    def _thinking_frames(self, event: ThinkingEvent) -> list[Frame]: ...

    @abstractmethod
    def _call_frames(self, call: Call) -> list[Frame]: ...

    @abstractmethod
    def _error_frames(self, error: ErrorEvent) -> list[Frame]: ...

    @abstractmethod
    def _end_frames(self, reason: FinishReason) -> list[Frame]: ...

    def _close_frames(self) -> list[Frame]:
        return []


@dataclass(kw_only=True)
class Answer:
    """The content of a complete stream, for a response that is not streamed."""

    id: str | None = None
    """The id of the response or the run."""
    model: str | None = None
    """The name of the model, or of the agent."""
    text: str = ''
    """The text, without the text of failed attempts."""
    thoughts: list[ThinkingEvent] = field(default_factory=list[ThinkingEvent])
    """The thoughts, each as a single event."""
    calls: list[Call] = field(default_factory=list[Call])
    """The calls that the client must answer, including pending approvals."""
    usage: UsageEvent = field(default_factory=UsageEvent)
    """The last usage of the stream."""
    finish_reason: FinishReason = 'stop'
    """Why the answer ended."""
    error: ErrorEvent | None = None
    """The failure, if any. The other fields are then incomplete."""


def read_answer(events: Iterable[StreamEvent], *, tool_calls: bool = False) -> Answer:
    """Return the content of a complete stream.

    Args:
        events: All events of the stream.
        tool_calls: As in `AnswerEncoder`.
    """
    answer, text, end = Answer(), AnswerText(), None
    for event in events:
        match event:
            case StartEvent():
                answer.id, answer.model = event.id, event.model
            case TextEvent(path=[]):
                text.add(event.text)
            case ThinkingEvent(path=[]):
                _add_thought(answer.thoughts, event)
            case ToolCallEvent(path=[]) if tool_calls:
                answer.calls.append(Call(id=event.id, name=event.name, args=event.args))
            case ToolResultEvent(path=[]):
                text.start_paragraph()
            case RetriedEvent(path=[], void_text=void) if void:
                text.void(void)
            case ApprovalRequiredEvent():
                answer.calls += [approval_call(approval) for approval in event.approvals]
            case UsageEvent():
                answer.usage = event
            case ErrorEvent():
                answer.error = answer.error or event
            case EndEvent():
                end = event
            case _:
                pass
    _read_end(answer, text, end)
    return answer


def _read_end(answer: Answer, text: AnswerText, end: EndEvent | None) -> None:
    if end is None:
        answer.error = answer.error or BROKEN_OFF
    elif end.finish_reason == 'error' or end.status in ('failed', 'interrupted'):
        answer.error = answer.error or INTERRUPTED
    else:
        answer.finish_reason = 'tool_call' if answer.calls else end.finish_reason
        rest = text.rest_of(end.output)
        if rest:
            text.add(rest)
    answer.text = text.text


def _add_thought(thoughts: list[ThinkingEvent], event: ThinkingEvent) -> None:
    """Append a piece to the last thought, unless a signature has closed that thought."""
    if thoughts and thoughts[-1].signature is None:
        thoughts[-1] = ThinkingEvent(text=thoughts[-1].text + event.text, signature=event.signature)
    else:
        thoughts.append(event)
