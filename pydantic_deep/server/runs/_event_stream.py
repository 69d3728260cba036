"""Runs as server-sent events, and where a client that comes back goes on.

A plain `StreamingResponse` rather than sse-starlette's: that one ends all streams when the process is told to stop,
while the runs that they tell of may still end well, and needs two more tasks for each.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from starlette.responses import Response, StreamingResponse

from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.streaming import STREAM_EVENTS, Frame, StreamEvent, render_frame
from pydantic_deep.streaming._lines import EventEncoder

from ._run_log import LogForgottenError, RunLog

STORED = 'stored'
"""The epoch of what is told from the store: it is the same whenever and wherever it is told."""

HEADERS = {'cache-control': 'no-store', 'x-accel-buffering': 'no'}
"""Nobody on the way keeps or collects a stream."""

KEEPALIVE = b': still here\n\n'
"""A comment: clients skip it, and proxies see that the connection lives."""

RESET = render_frame(Frame(event='reset', data='{"type":"reset"}')).encode()
"""Tells a client to forget what this run has told: all of it follows, in other pieces."""

FRAMES: dict[str, object] = {
    'type': 'object',
    'properties': {
        'event': {'type': 'string'},
        'data': {'type': 'string'},
        'id': {'type': 'string'},
        'retry': {'type': 'integer', 'minimum': 0},
    },
}
"""The `itemSchema` of a stream (OpenAPI 3.2, section "Sequential Media Types"): what each of its frames is."""

RETRY_MILLISECONDS = 1000
"""How long a client waits before it comes back."""

_POSITION = re.compile(r'([0-9a-f-]{36})\.([a-z0-9]{1,32})\.([0-9]{1,15})')


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a client has read: the `id` of an event."""

    run_id: str
    epoch: str
    """The log that the number is of."""
    number: int
    """That of the last event that was read."""

    def __str__(self) -> str:
        return f'{self.run_id}.{self.epoch}.{self.number}'


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What of a run a client wants to be told."""

    tool_results: bool = False
    function_calls: bool = False
    thinking: bool = False

    def encoder(self) -> EventEncoder:
        """Return an encoder; notices are in the log, where they have numbers."""
        return EventEncoder(
            notice=None,
            tool_results=self.tool_results,
            function_calls=self.function_calls,
            thinking=self.thinking,
        )


def parse_position(text: str | None, run_id: str) -> Position | None:
    """Return where a client goes on; `None` from the beginning.

    Raises:
        ServerError: It is no id of an event of this run.
    """
    if not text:
        return None
    found = _POSITION.fullmatch(text)
    if found is None or found[1] != run_id:
        raise ServerError('invalid', '`Last-Event-ID` is no id of an event of this run. Leave it out to begin anew.')
    return Position(run_id=run_id, epoch=found[2], number=int(found[3]))


def tail_log(
    log: RunLog, run_id: str, position: Position | None, shown: Shown, *, keepalive_seconds: float
) -> Response:
    """Return the response that tells a run of this process, from its log.

    Raises:
        ServerError: The client has read more than there is.
    """
    is_known = position is not None and position.epoch == log.epoch
    after = position.number if position is not None and is_known else 0
    if after > len(log):
        raise ServerError('invalid', f'`Last-Event-ID` is of event {after}, and there are {len(log)}.')
    if is_known and log.is_closed and after == len(log):
        return nothing_more()
    is_reset = position is not None and not is_known
    return stream_response(_of_log(log, run_id, after, shown, keepalive_seconds), is_reset=is_reset)


def tail_stored(
    batches: AsyncGenerator[list[tuple[int, StreamEvent]]], run_id: str, position: Position | None, shown: Shown
) -> Response:
    """Return the response that tells a run from the store."""
    return stream_response(
        _of_store(batches, run_id, shown), is_reset=position is not None and position.epoch != STORED
    )


def nothing_more() -> Response:
    """Return what makes an `EventSource` stop coming back: HTTP 204 (WHATWG HTML, section 9.2.3)."""
    return Response(status_code=204, headers=HEADERS)


def stream_response(chunks: AsyncGenerator[bytes], *, is_reset: bool = False) -> StreamingResponse:
    """Return the response that streams frames."""

    async def begin() -> AsyncGenerator[bytes]:
        yield f'retry: {RETRY_MILLISECONDS}\n\n'.encode() + (RESET if is_reset else b'')
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    return StreamingResponse(begin(), media_type='text/event-stream', headers=HEADERS)


async def _of_log(
    log: RunLog, run_id: str, after: int, shown: Shown, keepalive_seconds: float
) -> AsyncGenerator[bytes]:
    encoder = shown.encoder()
    async with aclosing(log.batches(after, idle_seconds=keepalive_seconds)) as batches:
        try:
            async for batch in batches:
                events = [(number, STREAM_EVENTS.validate_json(data)) for number, data in batch]
                yield _render(events, encoder, run_id, log.epoch) or KEEPALIVE
        except LogForgottenError:
            return  # without an end: the client comes back, and is told from the store


async def _of_store(
    batches: AsyncGenerator[list[tuple[int, StreamEvent]]], run_id: str, shown: Shown
) -> AsyncGenerator[bytes]:
    encoder = shown.encoder()
    async with aclosing(batches):
        async for batch in batches:
            yield _render(batch, encoder, run_id, STORED) or KEEPALIVE


def _render(events: list[tuple[int, StreamEvent]], encoder: EventEncoder, run_id: str, epoch: str) -> bytes:
    """Return the frames of events; nothing where the client wants none of them."""
    text = ''
    for number, event in events:
        position = Position(run_id=run_id, epoch=epoch, number=number)
        text += ''.join(render_frame(replace(frame, id=str(position))) for frame in encoder.encode(event))
    return text.encode()
