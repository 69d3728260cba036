"""`HybridResponse`: a provider's stream that is decoded and relayed at the same time.

Nothing here depends on a provider: the decoder interprets the format, and another provider needs another `Decoder`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final, Protocol, TypeAlias, runtime_checkable

import anyio
from anyio.abc import AsyncResource
from pydantic import JsonValue

from pydantic_deep.streaming._buffer import WINDOW_BYTES, Spill, WindowedBuffer
from pydantic_deep.streaming._events import (
    EndEvent,
    ErrorEvent,
    FinishReason,
    StartEvent,
    StreamEvent,
    TextEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    UsageEvent,
)
from pydantic_deep.streaming._failures import without_keys
from pydantic_deep.streaming._frames import MAX_FRAME_BYTES, FrameReader, FrameTooLargeError, render_frame
from pydantic_deep.streaming._json import render_json
from pydantic_deep.streaming._protocol import Decoder, Frame, SupportsCallRemoval

from ._json_decoder import error_message, error_of, parse_json, parse_object

_MAX_ERROR_BYTES: Final = 64 * 1024
"""Maximum number of bytes read from the body of an error."""

_CLOSE_SECONDS: Final = 5
"""Maximum time that a cancelled reader waits for the connection to close. Closing sends a single packet."""

_LOGGER = logging.getLogger('pydantic_deep')


@runtime_checkable
class StreamingResponse(Protocol):
    """An HTTP response with a body that is read incrementally, such as `httpx.Response`."""

    @property
    def status_code(self) -> int:
        """The HTTP status of the response."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body, without its content encoding."""
        ...

    async def aclose(self) -> None:
        """Close the connection."""
        ...


@dataclass(frozen=True, kw_only=True)
class FunctionCall:
    """A complete tool call of an answer."""

    id: str
    """The id of the call: the provider's, or one made from the position of the call if the provider sent none."""
    name: str
    """The name of the called tool."""
    arguments: str
    """The arguments as the model wrote them."""

    def parsed(self) -> dict[str, JsonValue]:
        """Return the arguments.

        Raises:
            ValueError: The arguments are not a JSON object.
        """
        arguments = parse_object(self.arguments)
        if arguments is None:
            raise ValueError(
                f'The arguments of {self.name!r} are not a JSON object: {self.arguments[:200]!r}. Ask the model again.'
            )
        return arguments


class HybridResponse(AsyncResource):
    """A provider's streaming response. Iterate over it for events, or over `iter_lines` to relay it: one of them, once.

    `content()`, `tool_calls`, `model`, `usage`, `finish_reason` and `error` describe the received part, also after a
    cancellation; `pydantic_deep.audit.audit_response` writes an audit record of it. The source is read only as fast as
    events or lines are consumed. It is closed when it ends, when its reader is cancelled, and by `aclose`, which
    `async with` calls. The received part remains available.

    Any failure is an `ErrorEvent`, which is the last event: an HTTP error, a lost connection, a cut answer, or
    unreadable frames.
    """

    def __init__(
        self,
        source: StreamingResponse | AsyncIterable[bytes],
        decoder: Decoder,
        *,
        status: int | None = None,
        window_bytes: int = WINDOW_BYTES,
        spill: Spill | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        """Wrap a stream without reading from it yet.

        Args:
            source: The unread response of an HTTP client, or the chunks of its body.
            decoder: A new decoder for the provider.
            status: The HTTP status, if `source` does not have one.
            window_bytes: Maximum number of bytes of text in memory.
            spill: Storage for the rest of the text. Defaults to an unnamed temporary file.
            max_frame_bytes: Maximum size of a frame.
        """
        is_response = isinstance(source, StreamingResponse)
        self._source = source
        self._chunks = aiter(source.aiter_bytes() if is_response else source)
        self._decoder = decoder
        self._reader = FrameReader(max_frame_bytes=max_frame_bytes)
        self._text = WindowedBuffer(window_bytes=window_bytes, spill=spill)
        self._tool_calls: list[FunctionCall] = []
        self._has_begun = False
        self.status: int = status or (source.status_code if is_response else 200)
        """The HTTP status of the response."""
        self.started_at: datetime = datetime.now(UTC)
        """When the response was wrapped."""
        self.model: str | None = None
        """The model that the provider names, if any."""
        self.usage: UsageEvent | None = None
        """The most recent usage that the provider reported."""
        self.finish_reason: FinishReason | None = None
        """Why the answer ended. `None` if it has not ended, or ended with an error."""
        self.error: ErrorEvent | None = None
        """The failure that ended the stream, if any."""

    @property
    def tool_calls(self) -> list[FunctionCall]:
        """The complete calls, in order."""
        return [*self._tool_calls]

    async def content(self) -> str:
        """Return the whole text received so far, including the spilled part."""
        return await self._text.read()

    async def __aiter__(self) -> AsyncGenerator[StreamEvent]:
        """Yield the events of the provider's stream."""
        async with aclosing(self._steps()) as steps:
            async for _, events in steps:
                for event in events:
                    yield event

    async def iter_lines(self, *, function_calls: bool = False) -> AsyncGenerator[str]:
        """Yield the provider's frames as text, ready to be sent, without tool calls.

        Frames without tool calls are relayed unchanged; comments are dropped. With a decoder that cannot remove calls
        (`SupportsCallRemoval`), a frame that contains calls and other content is relayed unchanged too. An error is
        sent as `event: error`, with the fields of `ErrorEvent` and an `error` object that the SDKs of OpenAI and
        Anthropic recognize. It replaces a frame that has no other content, and nothing follows it.

        Args:
            function_calls: Whether to emit each complete call, before the frame that completes it, as
                `event: function_call` with `id`, `name` and `arguments`.
        """
        async with aclosing(self._steps()) as steps:
            async for frame, events in steps:
                for output_frame in self._frames(frame, events, function_calls=function_calls):
                    yield render_frame(output_frame)

    async def aclose(self) -> None:
        """Close the stream. To stop a stream that another task is reading, cancel that task."""
        for part in (self._chunks, self._source):
            if isinstance(part, _Closable):
                await part.aclose()

    async def _steps(self) -> AsyncGenerator[_Step]:
        """Yield each frame with its recorded events up to the one that ends the stream, then close the stream."""
        if self._has_begun:
            raise RuntimeError('This stream was already read. Wrap a new response, or use the received content.')
        self._has_begun = True
        try:
            async with aclosing(self._read() if self.status < 400 else self._read_error()) as steps:
                async for frame, events in steps:
                    recorded = await self._record(events)
                    yield frame, recorded
                    if recorded and isinstance(recorded[-1], ErrorEvent | EndEvent):
                        return
        finally:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self.aclose()

    async def _read(self) -> AsyncGenerator[_Step]:
        while isinstance(chunk := await self._next_chunk(), bytes):
            frames, errors = self._feed(chunk)
            for frame in frames:
                yield frame, self._decoder.decode(frame)
            if errors:
                yield None, errors
        if chunk is not None:
            yield None, [chunk]
        elif unfinished := self._reader.finish():
            yield self._decode_unfinished(unfinished)
        yield None, self._decoder.finish()

    async def _next_chunk(self) -> bytes | ErrorEvent | None:
        try:
            return await anext(self._chunks, None)
        except Exception as error:  # outermost boundary: every HTTP client raises its own errors
            _LOGGER.warning('The stream of a provider broke off', exc_info=error)
            # The error message may contain the URL, and the URL a key.
            message = f'The connection to the provider broke off ({type(error).__name__}). Ask again.'
            return ErrorEvent(kind='connection_lost', message=message, status=502)

    def _feed(self, chunk: bytes) -> tuple[list[Frame], list[ErrorEvent]]:
        try:
            return self._reader.feed(chunk), []
        except FrameTooLargeError as error:
            return error.frames, [ErrorEvent(kind='too_large', message=str(error), status=502)]

    def _decode_unfinished(self, frame: Frame) -> _Step:
        """Decode the last frame of a stream that ends without a blank line. If it can be parsed, it is complete."""
        events = self._decoder.decode(frame)
        if any(isinstance(event, ErrorEvent) and event.kind == 'malformed' for event in events):
            return None, [
                ErrorEvent(kind='truncated', message='The stream ended within a frame. Ask again.', status=502)
            ]
        return frame, events

    async def _read_error(self) -> AsyncGenerator[_Step]:
        body = bytearray()
        while len(body) < _MAX_ERROR_BYTES and isinstance(chunk := await self._next_chunk(), bytes):
            body += chunk
        detail = _error_detail(body[:_MAX_ERROR_BYTES].decode(errors='replace'))
        message = f'The provider answered with HTTP {self.status}{f": {detail}" if detail else "."}'
        yield None, [ErrorEvent(kind='http_error', message=message, status=self.status)]

    async def _record(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        """Store the content of events, up to the first that ends the stream, and return the stored events."""
        recorded: list[StreamEvent] = []
        for event in events:
            recorded.append(event)
            if isinstance(event, TextEvent) and (failure := await self._store_text(event.text)):
                recorded.append(failure)
            elif isinstance(event, ToolCallEvent):
                self._tool_calls.append(FunctionCall(id=event.id, name=event.name, arguments=event.args))
            elif isinstance(event, StartEvent):
                self.model = event.model or self.model
            elif isinstance(event, UsageEvent):
                self.usage = event
            if isinstance(last := recorded[-1], EndEvent):
                self.finish_reason = last.finish_reason
                break
            if isinstance(last, ErrorEvent):
                self.error = last
                break
        return recorded

    async def _store_text(self, text: str) -> ErrorEvent | None:
        try:
            await self._text.append(text)
        except OSError as error:  # includes `StoreUnavailableError`
            _LOGGER.exception('The text of an answer could not be spilled')
            message = f'The text of the answer could not be stored ({type(error).__name__}). Free some space.'
            return ErrorEvent(kind='spill_failed', message=message, status=507)
        return None

    def _frames(self, frame: Frame | None, events: Sequence[StreamEvent], *, function_calls: bool) -> Iterator[Frame]:
        remaining = frame and self._without_calls(frame, events)
        for event in events:
            if function_calls and isinstance(event, ToolCallEvent):
                call = {'id': event.id, 'name': event.name, 'arguments': event.args}
                yield Frame(event='function_call', data=render_json(call))
        error = events[-1] if events else None
        if not isinstance(error, ErrorEvent):
            error = None
        if remaining and not (error and len(events) == 1):
            yield remaining
        if error:
            yield _error_frame(error)

    def _without_calls(self, frame: Frame, events: Sequence[StreamEvent]) -> Frame | None:
        if isinstance(self._decoder, SupportsCallRemoval):
            return self._decoder.remove_calls(frame)
        if events and all(isinstance(event, ToolCallDeltaEvent | ToolCallEvent) for event in events):
            return None
        return frame


_Step: TypeAlias = tuple[Frame | None, Sequence[StreamEvent]]
"""A frame and its events, or events without a frame."""


@runtime_checkable
class _Closable(Protocol):
    """A response, or the generator of its chunks."""

    async def aclose(self) -> None: ...


def _error_detail(body: str) -> str:
    """Return the message in the body of an error, unless the body is an HTML page."""
    if (value := parse_json(body)) is not None:
        return error_message(error_of(value))
    return '' if body.lstrip().startswith('<') else without_keys(' '.join(body.split())[:200])


def _error_frame(event: ErrorEvent) -> Frame:
    """Return an error frame with our own fields and an `error` object for the OpenAI and Anthropic SDKs.

    Google's SDK does not know `event:` fields, and raises.
    """
    error = {'type': event.kind, 'message': event.message, 'code': event.status}
    return Frame(event='error', data=render_json({**asdict(event), 'error': error}))
