"""Streams of threads: watchers, reconnects and keep-alives."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from starlette.responses import StreamingResponse

from pydantic_deep.server.runs._event_stream import KEEPALIVE
from pydantic_deep.server.runs._run_log import RunLog
from pydantic_deep.server.ui._turns import tail_run
from pydantic_deep.store import new_id
from tests.server.conftest import Client, Gate, Served, frames_in
from tests.server.ui.conftest import asked, events_in, replace_log, run, text_of

pytestmark = pytest.mark.anyio


async def test_run_survives_a_disconnect_and_has_several_watchers(live: Client, served: Served, gate: Gate):
    """A disconnect of the client does not affect the run."""
    async with live.stream('POST', '/ag-ui/writer', json=asked('hold')) as response:
        await anext(response.aiter_raw())
    await gate.reached.wait()
    watched: list[bytes] = []

    async def watch() -> None:
        async with live.stream('GET', '/ag-ui/writer/t/stream') as response:
            chunks = response.aiter_raw()
            first = await anext(chunks)
            begun.append(response.headers['x-run-id'])
            if len(begun) == 2:
                gate.opened.set()
            watched.append(first + b''.join([chunk async for chunk in chunks]))

    begun: list[str] = []
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        group.start_soon(watch)

    assert begun[0] == begun[1]
    assert watched[0] == watched[1]
    assert text_of(events_in(watched[0])) == 'Done: held'
    assert (await live.get('/ag-ui/writer/t/stream')).status_code == 204


async def test_reconnect_continues_the_stream_without_a_new_run(ada: Client, served: Served):
    whole = await ada.post('/ag-ui/writer', json=asked('Hi'))
    frames = frames_in(whole.content)
    assert [frame.id is not None for frame in frames] == [True] * len(frames)
    for at in range(len(frames) - 1):
        headers = {'last-event-id': str(frames[at].id)}
        posted = await ada.post('/ag-ui/writer', json=asked('Hi'), headers=headers)
        got = await ada.get('/ag-ui/writer/t/stream', headers=headers)
        assert frames_in(posted.content) == frames_in(got.content) == frames[at + 1 :]
    last = {'last-event-id': str(frames[-1].id)}

    assert (await ada.post('/ag-ui/writer', json=asked('Hi'), headers=last)).status_code == 204
    assert len(served.state.runs.runs_of('ada')) == 1


async def test_reconnect_to_a_discarded_log_is_a_conflict(ada: Client, served: Served):
    whole = await ada.post('/ag-ui/writer', json=asked('Hi'))
    run_id, epoch, _ = str(frames_in(whole.content)[0].id).split('.')

    async def status(last: str, path: str = '/ag-ui/writer/t/stream') -> int:
        return (await ada.get(path, headers={'last-event-id': last})).status_code

    assert await status(f'{run_id}.{epoch}.999') == 409
    assert await status(f'{run_id}.0000.1') == 409
    assert await status(f'{run_id}.nonsense') == 422
    assert await status(f'{new_id()}.{epoch}.1') == 404
    assert await status('nonsense') == 404
    await ada.post('/vercel/writer', json={'id': 't', 'messages': [said('Hi')]})
    assert await status(f'{run_id}.{epoch}.1', '/vercel/writer/t/stream') == 409
    served.state.runs.clear_logs()
    assert await status(f'{run_id}.{epoch}.1') == 409


def said(text: str) -> dict[str, object]:
    return {'id': 'u', 'role': 'user', 'parts': [{'type': 'text', 'text': text}]}


async def test_idle_ag_ui_stream_sends_keepalives_until_the_log_is_discarded(ada: Client, served: Served):
    await run(ada, asked('Hi'))
    [ended] = served.state.runs.runs_of('ada')
    log = RunLog()
    log.append(b'data: {}\n\n')
    state = replace(served.state, settings=served.state.settings.model_copy(update={'keepalive_seconds': 0}))
    response = tail_run(state, replace_log(ended, log), 'ag-ui')
    assert isinstance(response, StreamingResponse)
    chunks = aiter(response.body_iterator)

    assert await anext(chunks) == f'id: {ended.id}.{log.epoch}.1\ndata: {{}}\n\n'.encode()
    assert await anext(chunks) == KEEPALIVE
    log.append(b'data: {}\n\n')
    log.discard()
    assert [chunk async for chunk in chunks] == []
