"""`JsonDecoder`: the shared part of all provider decoders. Handles untrusted JSON, the end of a stream, and errors."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final, NoReturn, TypeAlias, cast

from pydantic import JsonValue

from pydantic_deep.streaming._events import EndEvent, ErrorEvent, FinishReason, StartEvent, StreamEvent, UsageEvent
from pydantic_deep.streaming._failures import without_keys
from pydantic_deep.streaming._protocol import Frame

from ._call_pieces import MAX_CALL_CHARS, CallPieces, CallsTooLargeError

JsonObject: TypeAlias = dict[str, JsonValue]
"""The parsed content of a provider frame."""

_MESSAGE_LIMIT_CHARS: Final = 2000
"""Maximum length of a relayed provider message: some messages quote the whole request."""


class JsonDecoder(ABC):
    """Decodes a stream of JSON object frames. Stateful: create one for each stream.

    Nothing follows an `ErrorEvent` or an `EndEvent`. A frame that is not a JSON object is an error of kind `malformed`
    and ends decoding: an answer with a gap would look complete. Within a frame, unknown fields and fields of an
    undocumented type are ignored.
    """

    _status_by_type: ClassVar[Mapping[str, int]] = {}
    """HTTP statuses of named error types."""

    def __init__(self, *, max_call_chars: int = MAX_CALL_CHARS) -> None:
        """Create a decoder for one stream.

        Args:
            max_call_chars: Maximum number of characters in all tool calls of the answer. Beyond it, an error of kind
                `too_large` ends the stream.
        """
        self._calls = CallPieces(max_call_chars)
        self._reason: FinishReason | None = None
        self._answer_id: str | None = None
        self._has_started = False
        self._usage: UsageEvent | None = None
        self._is_over = False

    def decode(self, frame: Frame) -> Sequence[StreamEvent]:
        """Return the events of a frame, often none."""
        events: list[StreamEvent] = []
        if not self._is_over and frame.data:
            try:
                self._append_events(frame, events)
            except CallsTooLargeError:
                self._is_over = True
                message = 'The tool calls of the answer are too large to keep. Decode with more `max_call_chars`.'
                events.append(ErrorEvent(kind='too_large', message=message, status=502))
        return events

    def finish(self) -> Sequence[StreamEvent]:
        """Return the end if the provider sent a finish reason, otherwise an error of kind `truncated`.

        In case of an error, unfinished calls are not emitted.
        """
        if self._is_over:
            return ()
        self._is_over = True
        if self._reason is None:
            message = 'The stream ended before the answer did. Ask again.'
            return (ErrorEvent(kind='truncated', message=message, status=502),)
        return tuple(self._end())

    def _append_events(self, frame: Frame, events: list[StreamEvent]) -> None:
        """Append the events of a frame, up to an error or the end."""
        for event in self._frame_events(frame):
            events.append(event)
            if isinstance(event, ErrorEvent | EndEvent):
                self._is_over = True
                return

    def _frame_events(self, frame: Frame) -> Iterator[StreamEvent]:
        body = parse_object(frame.data)
        is_error = frame.event == 'error'
        if body is not None:
            yield from self._read(body)
            is_error = is_error or body.get('type') == 'error' or bool(body.get('error'))
        elif not is_error:
            message = f'A frame is not a JSON object, so the answer is cut here: {frame.data[:200]!r}. Ask again.'
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
        """Yield the events of a frame, except for an `error`."""

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

    def _call_id(self, provider_id: str, index: int) -> str:
        """Return the provider's id of a call, or one made from the call's position if the provider sent none."""
        return provider_id or f'{self._answer_id or "call"}-{index}'


def parse_object(text: str) -> JsonObject | None:
    """Parse `text` as a JSON object. Return `None` if it is not one."""
    value = parse_json(text)
    return value if isinstance(value, dict) else None


def parse_json(text: str) -> JsonValue:
    """Parse `text` as JSON. Return `None` if it is invalid, or `null`."""
    try:
        return cast(JsonValue, json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


def render_args(value: JsonValue) -> str:
    """Return arguments that are not a string as compact JSON."""
    return text_of(json.dumps(value, ensure_ascii=False, separators=(',', ':')))


def object_of(value: JsonValue) -> JsonObject:
    """Return `value` if it is an object, otherwise an empty object."""
    return value if isinstance(value, dict) else {}


def objects_of(value: JsonValue) -> list[JsonObject]:
    """Return the objects of a list, ignoring everything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(value: JsonValue) -> str:
    """Return `value` if it is a string, otherwise an empty string. Lone surrogates become U+FFFD, to be encodable."""
    if not isinstance(value, str):
        return ''
    return value if value.isascii() else value.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')


def count_of(value: JsonValue) -> int:
    """Return `value` if it is a positive integer, otherwise 0."""
    return value if type(value) is int and value > 0 else 0


def index_of(value: JsonValue) -> int | None:
    """Return `value` if it is a valid index, otherwise `None`."""
    return value if type(value) is int and value >= 0 else None


def error_of(body: JsonValue) -> JsonObject:
    """Return the error in a frame or body: its `error` or the whole, as an object or a string, possibly in a list."""
    if isinstance(body, list):
        return error_of(body[0]) if body else {}
    if not isinstance(body, dict):
        return {'message': body}
    return error_of(body['error']) if body.get('error') else body


def error_message(error: JsonObject) -> str:
    """Return the message of an error."""
    for key in ('message', 'detail', 'type', 'status'):
        if text := text_of(error.get(key)):
            return without_keys(text[:_MESSAGE_LIMIT_CHARS])
    return 'it did not say why.'


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f'{constant} is not valid JSON.')
