"""`HybridResponse`: a provider's stream, decoded and passed on at the same time.

What the provider's format means is the decoder's business. Nothing here names a provider: another one is another
`Decoder`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Protocol, Self, TypeAlias, runtime_checkable

import anyio
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
from pydantic_deep.streaming._frames import MAX_FRAME_BYTES, FrameReader, FrameTooLargeError, render_frame
from pydantic_deep.streaming._json import render_json
from pydantic_deep.streaming._protocol import Decoder, Frame, SupportsCallRemoval

from ._json_decoder import error_message, error_of, parse_json, parse_object, without_keys

_MAX_ERROR_BYTES: Final = 64 * 1024
"""How much of the body of an error is read."""

_CLOSE_SECONDS: Final = 5
"""How long a cancelled reader waits for the connection to be closed: it is one packet."""

_LOGGER = logging.getLogger('pydantic_deep')


@runtime_checkable
class StreamingResponse(Protocol):
    """An HTTP response whose body is read as it comes, as `httpx.Response` is one."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body, without its content encoding."""
        ...

    async def aclose(self) -> None:
        """Close the connection."""
        ...


@dataclass(frozen=True, kw_only=True)
class FunctionCall:
    """A tool call of an answer."""

    id: str
    """The id of the call."""
    name: str
    """The name of the tool."""
    arguments: str
    """The arguments as the model wrote them."""

    def parsed(self) -> dict[str, JsonValue]:
        """Return the arguments.

        Raises:
            ValueError: They are no JSON object.
        """
        arguments = parse_object(self.arguments)
        if arguments is None:
            raise ValueError(
                f'The arguments of {self.name!r} are no JSON object: {self.arguments[:200]!r}. Ask the model again.'
            )
        return arguments


class HybridResponse:
    """A provider's streaming answer: iterate it for events, or `iter_lines` to pass it on; once, one or the other.

    What has come so far is in `content()`, `tool_calls`, `model`, `usage`, `finish_reason` and `error`, also when it was
    cancelled half way; `pydantic_deep.audit.audit_response` writes a record of it. The stream is read as fast as its events or lines are taken. It is closed when it has ended,
    when its reader is cancelled, and by `aclose`, which `async with` calls; what has come stays.

    Whatever goes wrong is an `ErrorEvent`, and the last one: an HTTP error, a connection that broke off, an answer that
    was cut, frames that cannot be read.
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
        """Wrap a stream; nothing is read yet.

        Args:
            source: The response of an HTTP client, not read yet, or only the chunks of its body.
            decoder: A new one, of the provider that answers.
            status: The HTTP status, where `source` does not know it.
            window_bytes: How much of the text is in memory.
            spill: Where the rest of it goes; a file without a name unless told otherwise.
            max_frame_bytes: How large a frame may be.
        """
        is_response = isinstance(source, StreamingResponse)
        self._source = source
        self._chunks = aiter(source.aiter_bytes() if is_response else source)
        self._decoder = decoder
        self._reader = FrameReader(max_frame_bytes=max_frame_bytes)
        self._text = WindowedBuffer(window_bytes=window_bytes, spill=spill)
        self._tool_calls: list[FunctionCall] = []
        self._has_begun = False
        self.status = status or (source.status_code if is_response else 200)
        """The HTTP status."""
        self.started_at = datetime.now(UTC)
        """When it was wrapped."""
        self.model: str | None = None
        """The model that answers, if the provider names it."""
        self.usage: UsageEvent | None = None
        """What was used, as far as the provider has said."""
        self.finish_reason: FinishReason | None = None
        """Why the answer ended; `None` if it has not, or by an error."""
        self.error: ErrorEvent | None = None
        """What went wrong."""

    @property
    def tool_calls(self) -> list[FunctionCall]:
        """The calls that are whole, in order."""
        return [*self._tool_calls]

    async def content(self) -> str:
        """Return the text that has come, all of it, whether it is in memory or spilled."""
        return await self._text.read()

    async def __aiter__(self) -> AsyncGenerator[StreamEvent]:
        """Yield what the provider says."""
        async with aclosing(self._steps()) as steps:
            async for _, events in steps:
                for event in events:
                    yield event

    async def iter_lines(self, *, function_calls: bool = False) -> AsyncGenerator[str]:
        """Yield the frames of the provider as text, ready to be sent, without what they say of tool calls.

        A frame that says nothing of tool calls is passed on as it came; comments are not. With a decoder that cannot
        part calls from the rest (`SupportsCallRemoval`), a frame that tells both is passed on as it came too.
        An error is `event: error`, with the fields of `ErrorEvent` and an `error` by which the SDKs of OpenAI and
        Anthropic know it; it takes the place of a frame that told nothing else, and nothing comes after it.

        Args:
            function_calls: Whether each call is told when it is whole, before the frame that completes it, as
                `event: function_call` with `id`, `name` and `arguments`.
        """
        async with aclosing(self._steps()) as steps:
            async for frame, events in steps:
                for told in self._frames(frame, events, function_calls=function_calls):
                    yield render_frame(told)

    async def aclose(self) -> None:
        """Close the stream. To end it while another task reads, cancel that task."""
        for part in (self._chunks, self._source):
            if isinstance(part, _Closable):
                await part.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _steps(self) -> AsyncGenerator[_Step]:
        """Yield each frame with its events, noted already, up to the first that ends the stream; then close it."""
        if self._has_begun:
            raise RuntimeError('This stream was read already. Wrap a new response, or use what has come of this one.')
        self._has_begun = True
        try:
            async with aclosing(self._read() if self.status < 400 else self._read_error()) as steps:
                async for frame, events in steps:
                    noted = await self._note(events)
                    yield frame, noted
                    if noted and isinstance(noted[-1], ErrorEvent | EndEvent):
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
        except Exception as error:  # the edge: every HTTP client has errors of its own
            _LOGGER.warning('The stream of a provider broke off', exc_info=error)
            # What the error says may have the URL in it, and the URL a key.
            message = f'The connection to the provider broke off ({type(error).__name__}). Ask again.'
            return ErrorEvent(kind='connection_lost', message=message, status=502)

    def _feed(self, chunk: bytes) -> tuple[list[Frame], list[ErrorEvent]]:
        try:
            return self._reader.feed(chunk), []
        except FrameTooLargeError as error:
            return error.frames, [ErrorEvent(kind='too_large', message=str(error), status=502)]

    def _decode_unfinished(self, frame: Frame) -> _Step:
        """Decode the last frame of a stream that ends without a blank line: it is whole if it can be read."""
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
        said = _said_in(body[:_MAX_ERROR_BYTES].decode(errors='replace'))
        message = f'The provider answered with HTTP {self.status}{f": {said}" if said else "."}'
        yield None, [ErrorEvent(kind='http_error', message=message, status=self.status)]

    async def _note(self, events: Sequence[StreamEvent]) -> list[StreamEvent]:
        """Keep what events say, up to the first that ends the stream; return these."""
        noted: list[StreamEvent] = []
        for event in events:
            noted.append(event)
            if isinstance(event, TextEvent) and (failure := await self._keep(event.text)):
                noted.append(failure)
            elif isinstance(event, ToolCallEvent):
                self._tool_calls.append(FunctionCall(id=event.id, name=event.name, arguments=event.args))
            elif isinstance(event, StartEvent):
                self.model = event.model or self.model
            elif isinstance(event, UsageEvent):
                self.usage = event
            if isinstance(last := noted[-1], EndEvent):
                self.finish_reason = last.finish_reason
                break
            if isinstance(last, ErrorEvent):
                self.error = last
                break
        return noted

    async def _keep(self, text: str) -> ErrorEvent | None:
        try:
            await self._text.append(text)
        except OSError as error:  # `StoreUnavailableError` is one too
            _LOGGER.exception('The text of an answer could not be spilled')
            message = f'The text of the answer could not be kept ({type(error).__name__}). Make room for it.'
            return ErrorEvent(kind='spill_failed', message=message, status=507)
        return None

    def _frames(self, frame: Frame | None, events: Sequence[StreamEvent], *, function_calls: bool) -> Iterator[Frame]:
        kept = frame and self._without_calls(frame, events)
        for event in events:
            if function_calls and isinstance(event, ToolCallEvent):
                call = {'id': event.id, 'name': event.name, 'arguments': event.args}
                yield Frame(event='function_call', data=render_json(call))
        error = events[-1] if events else None
        if not isinstance(error, ErrorEvent):
            error = None
        if kept and not (error and len(events) == 1):
            yield kept
        if error:
            yield _error_frame(error)

    def _without_calls(self, frame: Frame, events: Sequence[StreamEvent]) -> Frame | None:
        if isinstance(self._decoder, SupportsCallRemoval):
            return self._decoder.remove_calls(frame)
        if events and all(isinstance(event, ToolCallDeltaEvent | ToolCallEvent) for event in events):
            return None
        return frame


_Step: TypeAlias = tuple[Frame | None, Sequence[StreamEvent]]
"""A frame and what it says, or what is said without one."""


@runtime_checkable
class _Closable(Protocol):
    """A response, or the generator of its chunks."""

    async def aclose(self) -> None: ...


def _said_in(body: str) -> str:
    """Return what the body of an error says, if that is no page of HTML."""
    if (value := parse_json(body)) is not None:
        return error_message(error_of(value))
    return '' if body.lstrip().startswith('<') else without_keys(' '.join(body.split())[:200])


def _error_frame(event: ErrorEvent) -> Frame:
    """Tell an error in our own words and, beside them, where the SDKs of OpenAI and Anthropic look for it.

    Google's knows no `event:`, and raises at it.
    """
    error = {'type': event.kind, 'message': event.message, 'code': event.status}
    return Frame(event='error', data=render_json({**asdict(event), 'error': error}))
