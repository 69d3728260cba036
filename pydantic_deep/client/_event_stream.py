"""The events of a run, across lost connections."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

import anyio
import httpx2
from pydantic import ValidationError

from pydantic_deep.streaming import (
    STREAM_EVENTS,
    EndEvent,
    Frame,
    FrameReader,
    FrameTooLargeError,
    StreamEvent,
)

from ._connection import Connection, QueryValue, unanswered
from ._errors import ApiError

MAX_RECONNECTS: Final = 8
"""Attempts in a row without an event: with delays of 1, 2, 4, 8, 16 and three times 30 seconds, about two minutes, in
which a server restarts."""

_MAX_DELAY_SECONDS: Final = 30
"""The longest delay before an attempt to reconnect."""

_MAX_RETRY_AFTER_SECONDS: Final = 300
"""The longest wait that the server may ask for. A longer one ends the stream with an error that has its length."""

_DEFAULT_DELAY_SECONDS: Final = 1
"""The first delay if the server has not sent one."""

_TRANSIENT_STATUSES: Final = frozenset({429, 502, 503, 504})
"""Answers of a server or proxy that may accept the same request later."""

_MAX_FRAME_BYTES: Final = 512 * 1024 * 1024
"""Maximum size of an event: one that asks for approval of a write contains the largest file, 50 MiB, several times."""


class EventStream:
    """The events of a run, in order, from its beginning or after `last_event_id`, up to its `end` event.

    Iterate over it once, within `async with`, which closes the connection if you leave early. If the connection is lost,
    the stream reconnects and continues after the last event. Events of unknown types, from a newer server, are omitted.

    A second `start` event means that the server has divided the events differently, for example after its restart:
    discard all earlier events, since all events of the run follow.

    Iteration raises `ApiError` if the server refuses the request, or if reconnecting has failed too often.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        params: Mapping[str, QueryValue],
        *,
        last_event_id: str | None,
        max_reconnects: int,
    ) -> None:
        self.last_event_id = last_event_id
        """The id of the last event, from which another stream can continue."""
        self._connection = connection
        self._path = path
        self._params = params
        self._max_reconnects = max_reconnects
        self._delay_seconds: float = _DEFAULT_DELAY_SECONDS
        self._failures = 0
        self._is_over = False
        self._events = self._read()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._events.aclose()

    def __aiter__(self) -> AsyncGenerator[StreamEvent]:
        return self._events

    async def _read(self) -> AsyncGenerator[StreamEvent]:
        while True:
            try:
                async with aclosing(self._read_once()) as events:
                    async for event in events:
                        yield event
                        if isinstance(event, EndEvent):
                            return
                if self._is_over:
                    return
                failure = ApiError('The server ended the stream before the end of the run.')
            except httpx2.RequestError as error:
                failure = unanswered(f'GET {self._path}', error)
            except ApiError as error:
                if error.status not in _TRANSIENT_STATUSES:
                    raise
                failure = error
            await self._wait(failure)

    async def _read_once(self) -> AsyncGenerator[StreamEvent]:
        """Yield the events of one connection."""
        headers = {'accept': 'text/event-stream'}
        if self.last_event_id is not None:
            headers['last-event-id'] = self.last_event_id
        reader = FrameReader(max_frame_bytes=_MAX_FRAME_BYTES)
        async with self._connection.stream(self._path, self._params, headers) as response:
            self._is_over = response.status_code == HTTPStatus.NO_CONTENT
            async for chunk in response.aiter_bytes():
                for frame in _frames(reader, chunk):
                    event = _event(frame)
                    self.last_event_id = frame.id or self.last_event_id
                    if event is not None:
                        self._failures = 0
                        yield event
                if reader.retry_milliseconds is not None:
                    self._delay_seconds = reader.retry_milliseconds / 1000

    async def _wait(self, failure: ApiError) -> None:
        """Wait before the next attempt.

        Raises:
            ApiError: There were too many attempts, or the server asks for a longer wait than this stream accepts.
        """
        asked = failure.retry_after_seconds
        if self._failures >= self._max_reconnects or (asked or 0) > _MAX_RETRY_AFTER_SECONDS:
            raise failure
        delay = min(self._delay_seconds * 2**self._failures, _MAX_DELAY_SECONDS)
        self._failures += 1
        await anyio.sleep(delay if asked is None else asked)


def _frames(reader: FrameReader, chunk: bytes) -> list[Frame]:
    try:
        return reader.feed(chunk)
    except FrameTooLargeError as error:
        raise ApiError(
            f'An event has more than {error.max_frame_bytes} bytes, and was not read. Get the result of the run instead.'
        ) from error


def _event(frame: Frame) -> StreamEvent | None:
    """Return the event of a frame; `None` for a reset, which a `start` event follows, and for unknown types.

    Raises:
        ApiError: The frame is not an event.
    """
    if frame.event == 'reset':
        return None
    try:
        return STREAM_EVENTS.validate_json(frame.data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first['type'] == 'union_tag_invalid':
            return None
        raise ApiError(
            f'The stream contains something other than an event: {first["msg"]}. Check that the server and the client '
            'have the same version.'
        ) from error
