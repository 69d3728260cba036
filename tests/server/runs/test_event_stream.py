"""Disconnects and reconnects of event streams: no event is lost or repeated, and the run is not affected."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import httpx
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from starlette.responses import StreamingResponse

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.runs._event_stream import KEEPALIVE, Position, parse_position, tail_log
from pydantic_deep.server.runs._run_log import RunLog
from pydantic_deep.store import new_id
from pydantic_deep.streaming import (
    EventGroup,
    Frame,
    FrameReader,
    StreamEvent,
    TextEvent,
    encode_entry,
    event_frame,
)
from pydantic_deep.testing import Answer, ScriptedModel, call
from tests.server.conftest import Client, Gate, Listen, MakeClient, Serve, Served, frames_in, said, told

pytestmark = pytest.mark.anyio

WORDS = ' '.join(f'word{number}' for number in range(300))
"""The last text of the agent, streamed word by word."""

ALL = {'function_calls': 'true', 'tool_results': 'true'}


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Write twenty files, hold, and answer with a long text."""
    count = len(messages) // 2
    if count < 20:
        return [f'Step {count}. ', call('write_file', path=f'/{count}.txt', content='x' * 500)]
    return call('hold') if count == 20 else WORDS


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    return {'analyst': create_deep_agent(ScriptedModel(then=answer), tools=[gate.hold])}


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run')


@pytest.fixture
async def live(served: Served, listen: Listen) -> AsyncGenerator[Client]:
    """A client with a real socket."""
    async with listen(served.app) as url:
        headers = {'authorization': f'Bearer {await served.key()}'}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
            yield client


async def begin(client: Client) -> str:
    """Start a run and return the path of its events."""
    path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
    run = await client.post(f'{path}/turns', json={'prompt': 'go'}, params={'wait': 'false'})
    return f'{run.headers["location"]}/events'


async def read_until(client: Client, path: str, last: str | None, bytes_wanted: int) -> list[Frame]:
    """Read about `bytes_wanted` bytes of a stream after an event, disconnect, and return the complete frames."""
    frames: list[Frame] = []
    reader, seen = FrameReader(), 0
    headers = {} if last is None else {'last-event-id': last}
    async with client.stream('GET', path, headers=headers, params=ALL) as response:
        async for chunk in response.aiter_raw():
            frames += reader.feed(chunk[: max(0, bytes_wanted - seen)])
            seen += len(chunk)
            if seen >= bytes_wanted:
                break
    return frames


@pytest.mark.slow
async def test_fifty_reconnects_deliver_the_same_events(live: Client, gate: Gate):
    """004-12: SSE streaming with tool calls, auditing, multi-model schemes, as one experience."""
    path = await begin(live)
    chance = random.Random(6)
    received: list[list[Frame]] = []

    async def listen(count: int) -> None:
        frames: list[Frame] = []
        for _ in range(count):
            last = frames[-1].id if frames else None
            frames += await read_until(live, path, last, chance.randrange(1, 4000))
            if len(frames) > 60:
                gate.opened.set()
        while not frames or frames[-1].event != 'end':
            gate.opened.set()
            frames += await read_until(live, path, frames[-1].id if frames else None, 1_000_000)
        received.append(frames)

    async with anyio.create_task_group() as group:
        for count in (0, 10, 15, 25):
            group.start_soon(listen, count)

    whole = frames_in((await live.get(path, params=ALL)).content)
    assert len(whole) > 300
    assert received == [whole] * 4
    assert said(whole).endswith(WORDS)


@pytest.mark.slow
async def test_slow_client_does_not_block_the_run_or_other_readers(live: Client, gate: Gate):
    path = await begin(live)
    gate.opened.set()

    async with live.stream('GET', path) as slow:
        run = await live.get(path.removesuffix('/events'))
        whole = frames_in((await live.get(path)).content)
        assert said(whole).endswith(WORDS)
        assert run.status_code == 200
        assert frames_in(await slow.aread()) == whole


@pytest.mark.slow
async def test_reconnect_after_the_last_event_returns_204(ada: Client, gate: Gate):
    gate.opened.set()
    path = await begin(ada)
    whole = frames_in((await ada.get(path)).content)

    again = await ada.get(path, headers={'last-event-id': whole[-1].id or ''})
    by_query = await ada.get(path, params={'last_event_id': whole[-2].id or ''})

    assert (again.status_code, again.content) == (204, b'')
    assert frames_in(by_query.content) == whole[-1:]


@pytest.mark.slow
async def test_invalid_event_ids_are_refused(ada: Client, gate: Gate):
    gate.opened.set()
    path = await begin(ada)
    whole = frames_in((await ada.get(path)).content)
    run_id, epoch, _ = (whole[0].id or '').split('.')

    for wrong in (
        'x',
        f'{run_id}.{epoch}',
        f'{new_id()}.{epoch}.1',
        f'{run_id}.{epoch}.999999',
        f'{run_id}.{epoch}.-1',
    ):
        assert (await ada.get(path, headers={'last-event-id': wrong})).status_code == 422
    with pytest.raises(ServerError):
        parse_position(f'{run_id}.{epoch}.1\n', run_id)


@pytest.mark.slow
async def test_event_id_of_another_epoch_restarts_the_stream(ada: Client, gate: Gate):
    gate.opened.set()
    path = await begin(ada)
    whole = frames_in((await ada.get(path)).content)
    run_id, _, number = (whole[5].id or '').split('.')

    anew = frames_in((await ada.get(path, headers={'last-event-id': f'{run_id}.0000000000000000.{number}'})).content)

    assert (anew[0].event, anew[0].id) == ('reset', None)
    assert anew[1:] == whole


@pytest.mark.slow
async def test_discarded_log_is_rebuilt_from_the_store(serve: Serve, settings: ServerSettings, gate: Gate):
    gate.opened.set()
    async with serve(settings=settings.model_copy(update={'log_retention_seconds': 3600})) as served:
        ada = served.client(await served.key())
        path = await begin(ada)
        whole = frames_in((await ada.get(path, params=ALL)).content)
        served.state.runs.clear_logs()

        stored = frames_in((await ada.get(path, params=ALL)).content)
        anew = frames_in((await ada.get(path, params=ALL, headers={'last-event-id': whole[50].id or ''})).content)
        on = frames_in((await ada.get(path, params=ALL, headers={'last-event-id': stored[10].id or ''})).content)
        done = await ada.get(path, headers={'last-event-id': stored[-1].id or ''})
        run = (await ada.get(path.removesuffix('/events'))).json()
        await ada.aclose()

    assert said(stored) == said(whole)
    calls = [[fields for event, fields in told(frames) if event == 'function_call'] for frames in (whole, stored)]
    assert calls[0] == calls[1]
    results = [[fields for event, fields in told(frames) if event == 'tool_result'] for frames in (whole, stored)]
    assert results[0] == results[1]
    assert told(stored)[-1] == told(whole)[-1]
    assert (anew[0].event, anew[1:]) == ('reset', stored)
    assert on == stored[11:]
    assert done.status_code == 204
    assert (run['is_here'], run['state'], run['output'], run['attempts']) == (False, 'complete', WORDS, 1)


async def test_idle_stream_sends_keepalives_until_the_log_is_discarded():
    run_id, log = new_id(), RunLog()
    response = tail_log(log, run_id, None, EventGroup(0), keepalive_seconds=0)
    assert isinstance(response, StreamingResponse)
    chunks = aiter(response.body_iterator)

    assert await anext(chunks) == b'retry: 1000\n\n'
    assert await anext(chunks) == KEEPALIVE
    log.append(encode_entry(TextEvent(text='a')))
    chunk = await anext(chunks)
    assert isinstance(chunk, bytes)
    assert told(frames_in(chunk)) == [('text', {'text': 'a', 'path': []})]
    log.append(encode_entry(TextEvent(text='b')))
    log.discard()
    assert [chunk async for chunk in chunks] == []


async def test_reader_that_another_server_sent_more_events_waits_for_the_next_one():
    """Servers copy the log of a run at their pace. A reader that has all entries so far is not refused before its end."""
    run_id, log = new_id(), RunLog()
    position = Position(run_id=run_id, epoch=log.epoch, number=2)
    log.append(encode_entry(TextEvent(text='a')))
    response = tail_log(log, run_id, position, EventGroup(0), keepalive_seconds=10)
    assert isinstance(response, StreamingResponse)
    for text in 'bc':
        log.append(encode_entry(TextEvent(text=text)))
    log.close()
    body = b''.join([chunk async for chunk in response.body_iterator if isinstance(chunk, bytes)])

    assert told(frames_in(body)) == [('text', {'text': 'c', 'path': []})]
    beyond = Position(run_id=run_id, epoch=log.epoch, number=4)
    with pytest.raises(ServerError, match='refers to event 4, but only 3 exist'):
        tail_log(log, run_id, beyond, EventGroup(0), keepalive_seconds=10)
    log.discard()


@pytest.mark.slow
async def test_events_are_encoded_once_and_never_parsed_for_readers(
    ada: Client, gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    gate.opened.set()
    encoded: list[str] = []

    def encode(event: StreamEvent) -> Frame:
        encoded.append(event.type)
        return event_frame(event)

    def parse(entry: bytes) -> StreamEvent:
        raise AssertionError(f'{entry!r} was parsed')

    monkeypatch.setattr('pydantic_deep.streaming._log_entries.event_frame', encode)
    monkeypatch.setattr('pydantic_deep.streaming._log_entries.decode_entry', parse)
    path = await begin(ada)
    readers = [await ada.get(path, params=params) for params in ({}, ALL, ALL)]
    read = [frame for frame in frames_in(readers[1].content) if frame.event]
    assert frames_in(readers[1].content) == frames_in(readers[2].content)
    assert len(encoded) > len(read) > len(frames_in(readers[0].content))
    assert len(encoded) == int(str(read[-1].id).rpartition('.')[2])
