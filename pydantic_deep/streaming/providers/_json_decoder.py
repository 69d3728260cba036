"""`JsonDecoder`: what the decoders of all providers share, that is untrusted JSON, the end of a stream, and errors."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final, NoReturn, TypeAlias, cast

from pydantic import JsonValue

from pydantic_deep.streaming._events import EndEvent, ErrorEvent, FinishReason, StartEvent, StreamEvent, UsageEvent
from pydantic_deep.streaming._protocol import Frame

from ._call_pieces import MAX_CALL_CHARS, CallPieces, CallsTooLargeError

JsonObject: TypeAlias = dict[str, JsonValue]
"""What a frame of a provider says."""

_MESSAGE_LIMIT_CHARS: Final = 2000
"""How much of a provider's message is passed on: some quote the whole request."""

_KEY: Final = re.compile(r'\b(sk-|AIza|xai-|gsk_|pd_)[-_A-Za-z0-9*.]{6,}|(?i:\bbearer\s+)[-_A-Za-z0-9.=+/]{6,}')
"""Keys of providers, and of ours, by how they begin."""


class JsonDecoder(ABC):
    """Decodes a stream whose frames are JSON objects. It has state: one for each stream.

    Nothing comes after an `ErrorEvent` or an `EndEvent`. A frame that is no JSON object is an error of kind
    `malformed` and the last that is read: an answer with a hole in it would pass for a whole one. Within a frame,
    what is unknown or of another type than documented is passed over.
    """

    _status_by_type: ClassVar[Mapping[str, int]] = {}
    """The HTTP status of errors that are told by a name."""

    def __init__(self, *, max_call_chars: int = MAX_CALL_CHARS) -> None:
        """Begin a stream.

        Args:
            max_call_chars: How many characters all tool calls of the answer may have together; more is an error of
                kind `too_large`.
        """
        self._calls = CallPieces(max_call_chars)
        self._reason: FinishReason | None = None
        self._answer_id: str | None = None
        self._has_started = False
        self._usage: UsageEvent | None = None
        self._is_over = False

    def decode(self, frame: Frame) -> Sequence[StreamEvent]:
        """Return what a frame says, often nothing."""
        events: list[StreamEvent] = []
        if not self._is_over and frame.data:
            try:
                self._take(frame, events)
            except CallsTooLargeError:
                self._is_over = True
                message = 'The tool calls of the answer are too large to keep. Decode with more `max_call_chars`.'
                events.append(ErrorEvent(kind='too_large', message=message, status=502))
        return events

    def finish(self) -> Sequence[StreamEvent]:
        """Return the end, if the provider has said why it ended, and an error of kind `truncated` if not.

        Calls that were being written then are not told whole: they are not.
        """
        if self._is_over:
            return ()
        self._is_over = True
        if self._reason is None:
            message = 'The stream ended before the answer did. Ask again.'
            return (ErrorEvent(kind='truncated', message=message, status=502),)
        return tuple(self._end())

    def _take(self, frame: Frame, events: list[StreamEvent]) -> None:
        """Append what a frame says, up to an error or the end."""
        for event in self._tell(frame):
            events.append(event)
            if isinstance(event, ErrorEvent | EndEvent):
                self._is_over = True
                return

    def _tell(self, frame: Frame) -> Iterator[StreamEvent]:
        body = parse_object(frame.data)
        is_error = frame.event == 'error'
        if body is not None:
            yield from self._read(body)
            is_error = is_error or body.get('type') == 'error' or bool(body.get('error'))
        elif not is_error:
            message = f'A frame is no JSON object, so the answer is cut here: {frame.data[:200]!r}. Ask again.'
            yield ErrorEvent(kind='malformed', message=message, status=502)
        if is_error:
            yield self._error(frame.data if body is None else body)

    def _error(self, body: JsonValue) -> ErrorEvent:
        error = error_of(body)
        status = count_of(error.get('code')) or self._status_by_type.get(text_of(error.get('type')), 0)
        return ErrorEvent(
            kind='provider_error',
            message=f'The provider failed: {error_message(error)}',
            status=status if 400 <= status < 600 else None,
        )

    @abstractmethod
    def _read(self, body: JsonObject) -> Iterator[StreamEvent]:
        """Yield what a frame says, but for an `error`."""

    def _start(self, id: JsonValue, model: JsonValue) -> Iterator[StreamEvent]:
        if not self._has_started:
            self._has_started = True
            self._answer_id = text_of(id) or None
            yield StartEvent(id=self._answer_id, model=text_of(model) or None)

    def _use(self, usage: UsageEvent) -> Iterator[StreamEvent]:
        if usage != self._usage:
            self._usage = usage
            yield usage

    def _end(self) -> Iterator[StreamEvent]:
        yield from self._calls.close_all()
        reason = self._reason or 'stop'
        if reason == 'stop' and self._calls.next_index:
            reason = 'tool_call'
        yield EndEvent(finish_reason=reason)

    def _call_id(self, given: str, index: int) -> str:
        """Return the id of a call, one that is made of its place in the answer where the provider gave none."""
        return given or f'{self._answer_id or "call"}-{index}'


def parse_object(text: str) -> JsonObject | None:
    """Return the JSON object that `text` is; `None` if it is none."""
    value = parse_json(text)
    return value if isinstance(value, dict) else None


def parse_json(text: str) -> JsonValue:
    """Return the JSON that `text` is; `None` if it is none, or `null`."""
    try:
        return cast(JsonValue, json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


def render_args(value: JsonValue) -> str:
    """Return arguments that did not come as text as compact JSON."""
    return text_of(json.dumps(value, ensure_ascii=False, separators=(',', ':')))


def object_of(value: JsonValue) -> JsonObject:
    """Return `value` if it is an object, or an empty one."""
    return value if isinstance(value, dict) else {}


def objects_of(value: JsonValue) -> list[JsonObject]:
    """Return the objects of a list, or nothing."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(value: JsonValue) -> str:
    """Return `value` if it is text, or an empty one; halves of characters become U+FFFD, as no encoding has them."""
    if not isinstance(value, str):
        return ''
    return value if value.isascii() else value.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')


def count_of(value: JsonValue) -> int:
    """Return `value` if it is a number of things, or 0."""
    return value if type(value) is int and value > 0 else 0


def index_of(value: JsonValue) -> int | None:
    """Return `value` if it can be an index."""
    return value if type(value) is int and value >= 0 else None


def error_of(body: JsonValue) -> JsonObject:
    """Return the error that a frame or a body tells: in `error` or as a whole, as an object or a text, or in a list."""
    if isinstance(body, list):
        return error_of(body[0]) if body else {}
    if not isinstance(body, dict):
        return {'message': body}
    return error_of(body['error']) if body.get('error') else body


def error_message(error: JsonObject) -> str:
    """Return what an error says of itself."""
    for key in ('message', 'detail', 'type', 'status'):
        if text := text_of(error.get(key)):
            return without_keys(text[:_MESSAGE_LIMIT_CHARS])
    return 'it did not say why.'


def without_keys(text: str) -> str:
    """Return what a provider says without the keys in it: some quote the one that they refuse."""
    return _KEY.sub('…', text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f'{constant} is no JSON.')
