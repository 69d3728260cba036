"""Runs as server-sent events, and the positions from which clients resume.

These are plain `StreamingResponse`s, which end with their log: when its run has ended, or when the server stops to follow
it. sse-starlette needs two more tasks per stream.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial

from starlette.responses import Response, StreamingResponse

from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.streaming import EventGroup, Frame, StreamEvent, encode_entry, frame_of, render_frame

from ._run_log import LogDiscardedError, RunLog

STORED_EPOCH = 'stored'
"""The epoch of events that are rebuilt from the store. They are the same in every process."""

HEADERS = {'cache-control': 'no-store', 'x-accel-buffering': 'no'}
"""Headers with which proxies neither cache nor buffer a stream."""

KEEPALIVE = b': still here\n\n'
"""A comment, which clients ignore and which shows proxies that the connection is alive."""

RESET = render_frame(Frame(event='reset', data='{"type":"reset"}')).encode()
"""Instructs a client to discard the events of this run: all of them follow, divided differently."""

FRAME_SCHEMA: dict[str, object] = {
    'type': 'object',
    'properties': {
        'event': {'type': 'string'},
        'data': {'type': 'string'},
        'id': {'type': 'string'},
        'retry': {'type': 'integer', 'minimum': 0},
    },
}
"""The `itemSchema` of a stream (OpenAPI 3.2, section "Sequential Media Types"): the schema of its frames."""

RETRY_MILLISECONDS = 1000
"""How long a client waits before it reconnects."""

_POSITION = re.compile(r'([0-9a-f-]{36})\.([a-z0-9]{1,32})\.([0-9]{1,15})')


@dataclass(frozen=True, kw_only=True)
class Position:
    """The `id` of an event, from which a client resumes."""

    run_id: str
    epoch: str
    """The epoch of the log that the number belongs to."""
    number: int
    """The number of the last event that the client read."""

    def __str__(self) -> str:
        return f'{self.run_id}.{self.epoch}.{self.number}'


def parse_position(text: str | None, run_id: str) -> Position | None:
    """Parse the position from which a client resumes. An empty position is the beginning, `None`.

    Raises:
        ServerError: The position is not the id of an event of this run.
    """
    if not text:
        return None
    match = _POSITION.fullmatch(text)
    if match is None or match[1] != run_id:
        raise ServerError('invalid', '`Last-Event-ID` is not the id of an event of this run. Omit it to start over.')
    return Position(run_id=run_id, epoch=match[2], number=int(match[3]))


def tail_log(
    log: RunLog, run_id: str, position: Position | None, groups: EventGroup, *, keepalive_seconds: float
) -> Response:
    """Return the response that streams a run from its log.

    A position beyond the entries so far is waited for: another server may have copied more of the log.

    Raises:
        ServerError: The position is beyond the end of the log.
    """
    is_known = position is not None and position.epoch == log.epoch
    after = position.number if position is not None and is_known else 0
    if log.is_closed and after > len(log):
        raise ServerError('invalid', f'`Last-Event-ID` refers to event {after}, but only {len(log)} exist.')
    if is_known and log.is_closed and after == len(log):
        return no_more_events()
    is_reset = position is not None and not is_known
    frames = log_frames(log, run_id, after, partial(frame_of, groups=groups), keepalive_seconds)
    return stream_response(frames, is_reset=is_reset)


def tail_stored(
    batches: AsyncGenerator[list[tuple[int, StreamEvent]]],
    run_id: str,
    position: Position | None,
    groups: EventGroup,
) -> Response:
    """Return the response that streams a run from the store."""
    return stream_response(
        _stored_frames(batches, run_id, groups), is_reset=position is not None and position.epoch != STORED_EPOCH
    )


def no_more_events() -> Response:
    """Return HTTP 204, which makes an `EventSource` stop reconnecting (WHATWG HTML, section 9.2.3)."""
    return Response(status_code=204, headers=HEADERS)


def stream_response(chunks: AsyncGenerator[bytes], *, is_reset: bool = False) -> StreamingResponse:
    """Return the response that streams frames, with a `reset` first if the client must discard earlier ones."""

    async def begin() -> AsyncGenerator[bytes]:
        yield f'retry: {RETRY_MILLISECONDS}\n\n'.encode() + (RESET if is_reset else b'')
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    return StreamingResponse(begin(), media_type='text/event-stream', headers=HEADERS)


async def log_frames(
    log: RunLog, run_id: str, after: int, frame_of: Callable[[bytes], bytes], keepalive_seconds: float
) -> AsyncGenerator[bytes]:
    """Yield the frames of a log with their ids, and comments while there are none.

    If the log is removed, the frames stop without an end event: the client reconnects, and then reads from the store.
    If another log replaces it, its frames follow, after a `reset`.
    """
    current: RunLog | None = log
    is_reset_needed = after > 0
    while current is not None:
        with suppress(LogDiscardedError):
            async with aclosing(current.batches(after, idle_seconds=keepalive_seconds)) as batches:
                async for batch in batches:
                    yield _numbered_frames(batch, frame_of, run_id, current.epoch)
                    is_reset_needed = is_reset_needed or bool(batch)
        current, after = current.successor, 0
        if current is not None and is_reset_needed:
            yield RESET


async def _stored_frames(
    batches: AsyncGenerator[list[tuple[int, StreamEvent]]], run_id: str, groups: EventGroup
) -> AsyncGenerator[bytes]:
    async with aclosing(batches):
        async for batch in batches:
            entries = [(number, encode_entry(event)) for number, event in batch]
            yield _numbered_frames(entries, partial(frame_of, groups=groups), run_id, STORED_EPOCH)


def _numbered_frames(
    entries: list[tuple[int, bytes]], frame_of: Callable[[bytes], bytes], run_id: str, epoch: str
) -> bytes:
    """Return the frames of entries with their ids, or a comment if there is none."""
    framed = ((number, frame_of(entry)) for number, entry in entries)
    frames = [
        f'id: {Position(run_id=run_id, epoch=epoch, number=number)}\n'.encode() + frame
        for number, frame in framed
        if frame
    ]
    return b''.join(frames) or KEEPALIVE
