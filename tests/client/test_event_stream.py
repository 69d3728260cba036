"""Streams of events across lost connections. The scripted server asks for reconnection without a delay."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import httpx2
import pytest

from pydantic_deep.client import ApiError, Client
from pydantic_deep.streaming import EndEvent, StreamEvent, TextEvent
from tests.client.conftest import answered_by

pytestmark = pytest.mark.anyio

NOW = 'retry: 0\n\n'
START = 'id: r.e.1\nevent: start\ndata: {"type": "start"}\n\n'
ONE = 'id: r.e.2\nevent: text\ndata: {"type": "text", "text": "one"}\n\n'
TWO = 'id: r.e.3\nevent: text\ndata: {"type": "text", "text": "two"}\n\n'
END = 'id: r.e.4\nevent: end\ndata: {"type": "end"}\n\n'
RESET = 'event: reset\ndata: {"type":"reset"}\n\n'
BUSY = {'error': {'type': 'unavailable', 'message': 'Restarting.'}}


class Parts(httpx2.AsyncByteStream):
    """A body that ends after some text, or is cut off there."""

    def __init__(self, text: str, *, is_cut: bool) -> None:
        self.text, self.is_cut = text, is_cut

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        yield self.text.encode()
        if self.is_cut:
            raise httpx2.ReadError('Connection lost')


def cut(text: str) -> httpx2.Response:
    """Return a response whose connection is lost after the text."""
    return httpx2.Response(200, stream=Parts(text, is_cut=True))


def whole(text: str) -> httpx2.Response:
    return httpx2.Response(200, stream=Parts(text, is_cut=False))


class Script:
    """A server that answers requests in turn, and records the positions from which they resume."""

    def __init__(self, *responses: httpx2.Response) -> None:
        self.responses = [*responses]
        self.positions: list[str | None] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.positions.append(request.headers.get('last-event-id'))
        return self.responses.pop(0)


async def read(script: Script, *, max_reconnects: int = 8, last_event_id: str | None = None) -> Sequence[StreamEvent]:
    """Return the events that a client reads."""
    async with (
        answered_by(script) as client,
        client.turns.events('r', last_event_id=last_event_id, max_reconnects=max_reconnects) as events,
    ):
        return [event async for event in events]


def texts(events: Sequence[StreamEvent]) -> list[str]:
    return [event.text if isinstance(event, TextEvent) else event.type for event in events]


async def test_stream_continues_after_the_last_event():
    """After a lost connection, the stream asks for the events after the last one, and yields each event once."""
    script = Script(cut(NOW + START + ONE), cut(TWO[:20]), whole(TWO + END))
    assert texts(await read(script)) == ['start', 'one', 'two', 'end']
    assert script.positions == [None, 'r.e.2', 'r.e.2']


async def test_stream_without_an_end_is_continued():
    """A response that ends between events, without `end`, is continued like a lost connection."""
    script = Script(whole(NOW + START), whole(ONE + TWO + END))
    assert texts(await read(script)) == ['start', 'one', 'two', 'end']


async def test_stream_of_an_ended_run_has_no_more_events():
    """A stream that resumes after the last event of an ended run is empty."""
    script = Script(httpx2.Response(204))
    assert await read(script, last_event_id='r.e.4') == []
    assert script.positions == ['r.e.4']


async def test_reset_is_followed_by_another_start():
    """If the server has other events after a restart, the stream has a second `start`, and then all of them."""
    script = Script(cut(NOW + START + ONE), whole(RESET + START + TWO + END))
    assert texts(await read(script)) == ['start', 'one', 'start', 'two', 'end']


async def test_unavailable_server_is_asked_again():
    """A server that is restarting is asked again after the time that it demands."""
    busy = httpx2.Response(503, json=BUSY, headers={'retry-after': '0'})
    script = Script(busy, whole(START + END))
    assert texts(await read(script)) == ['start', 'end']


async def test_server_that_asks_for_a_long_wait_is_not_waited_for():
    """The error has the length of the wait, and the caller decides."""
    script = Script(httpx2.Response(503, json=BUSY, headers={'retry-after': '301'}))
    with pytest.raises(ApiError) as busy:
        await read(script)
    assert (busy.value.status, busy.value.retry_after_seconds) == (503, 301)


async def test_attempts_are_limited_in_a_row():
    """An event between lost connections resets the count of attempts; the last failure is raised."""
    script = Script(cut(NOW + START), cut(ONE), cut(NOW), cut(TWO[:9]))
    async with answered_by(script) as client, client.turns.events('r', max_reconnects=1) as events:
        seen = [await anext(aiter(events)) for _ in range(2)]
        with pytest.raises(ApiError, match='GET /api/runs/r/events got no answer: Connection lost'):
            await anext(aiter(events))
        assert texts(seen) == ['start', 'one']
        assert (script.positions, events.last_event_id) == ([None, 'r.e.1', 'r.e.2'], 'r.e.2')


async def test_stream_that_never_ends_is_an_error():
    """A stream that is cut without an `end` is never taken for a complete one."""
    with pytest.raises(ApiError, match='The server ended the stream before the end of the run'):
        await read(Script(whole(START)), max_reconnects=0)


async def test_refusal_is_not_repeated():
    """A missing run is not asked for again."""
    body = {'error': {'type': 'not_found', 'message': 'Missing.'}}
    script = Script(httpx2.Response(404, json=body))
    with pytest.raises(ApiError, match='Missing') as missing:
        await read(script)
    assert (missing.value.status, len(script.positions)) == (404, 1)


async def test_unknown_events_are_omitted():
    """An event of a type that this release does not know is omitted, as the reference of events asks of readers."""
    new = 'id: r.e.2\nevent: later\ndata: {"type": "later", "x": 1}\n\n'
    assert texts(await read(Script(whole(START + new + END)))) == ['start', 'end']


@pytest.mark.parametrize('data', ['{"type": "text"}', 'not JSON'])
async def test_malformed_event_is_an_error(data: str):
    """An event without its fields, and anything else, is an error that names the cause."""
    with pytest.raises(ApiError, match=r'The stream contains something other than an event: .* same version'):
        await read(Script(whole(f'data: {data}\n\n')))


async def test_size_of_an_event_is_limited(monkeypatch: pytest.MonkeyPatch):
    """An event beyond the limit is an error, and is not requested again."""
    monkeypatch.setattr('pydantic_deep.client._event_stream._MAX_FRAME_BYTES', 50)
    script = Script(whole('data: ' + 'x' * 99))
    with pytest.raises(ApiError, match='An event has more than 50 bytes, and was not read'):
        await read(script)
    assert script.positions == [None]


async def test_leaving_early_closes_the_connection():
    """A reader that leaves the block before the end closes the response."""
    body = Parts(NOW + START + ONE + TWO + END, is_cut=False)
    response = httpx2.Response(200, stream=body)
    async with answered_by(Script(response)) as client:
        async with client.turns.events('r') as events:
            async for event in events:
                assert event.type == 'start'
                break
        assert response.is_closed


async def test_stream_resumes_in_another_client(ada: Client):
    """The position of a stream continues it in another one, also after the log of the run was read to its end."""
    conversation = await ada.conversations.create('analyst')
    run = await ada.turns.start(conversation.id, 'Hello')
    async with ada.turns.events(run.id) as events:
        await anext(aiter(events))
        position = events.last_event_id
    async with ada.turns.events(run.id, last_event_id=position) as rest:
        kinds = [event async for event in rest]
    async with ada.turns.events(run.id, last_event_id=rest.last_event_id) as nothing:
        assert [event async for event in nothing] == []
    assert 'start' not in texts(kinds)
    assert isinstance(kinds[-1], EndEvent)
