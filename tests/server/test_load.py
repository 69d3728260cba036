"""Many conversations at once: nothing is lost, nothing is out of order, and who does not read holds nobody.

`benchmarks/cases/ours_server.py` does it with 500, over sockets, and measures.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from starlette.types import Message, Scope

from pydantic_deep import create_deep_agent
from pydantic_deep.server._settings import ServerSettings
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import Client, Serve, Served, frames_in, said, told

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

STREAMS = 60
"""How many conversations stream at once."""

STALLED = 12
"""How many of their clients stop reading at a random place, for good."""

WORDS = ' '.join(f'word{number}' for number in range(100))
"""What each is told at the end, a piece for each word."""

LOG_MEMORY_BYTES = 4096
"""How much of a log may be in memory here: less than each has."""


@dataclass
class Meeting:
    """A tool in which all runs wait for each other: then all of them stream at once."""

    missing: int
    complete: anyio.Event = field(default_factory=anyio.Event)

    async def meet(self) -> str:
        """Wait for the others."""
        self.missing -= 1
        if self.missing == 0:
            self.complete.set()
        await self.complete.wait()
        return 'All are here.'


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    return ['Wait. ', call('meet')] if len(messages) == 1 else WORDS


@pytest.fixture
def settings() -> ServerSettings:
    return ServerSettings(
        requests_per_second=1000,
        request_burst=100_000,
        max_runs_per_key=STREAMS,
        log_memory_bytes=LOG_MEMORY_BYTES,
    )


@pytest.fixture
async def agents() -> Mapping[str, Any]:
    return {'analyst': create_deep_agent(ScriptedModel(then=answer), tools=[Meeting(STREAMS).meet])}


@dataclass
class Reader:
    """A client as the server meets it: what it was sent, and where it stops reading."""

    stops_after: int | None = None
    """After how many pieces nothing is taken any more, while the connection stays; `None` for never."""
    pieces: list[bytes] = field(default_factory=list[bytes])

    async def send(self, message: Message) -> None:
        """Take a piece; a client that does not read any more lets the server wait for ever."""
        if len(self.pieces) == self.stops_after:
            await anyio.sleep_forever()
        self.pieces.append(message.get('body', b''))


async def listen(served: Served, key: str, path: str, reader: Reader) -> None:
    """Begin a turn, and take what comes."""
    scope: Scope = {
        'type': 'http',
        'asgi': {'version': '3.0', 'spec_version': '2.4'},
        'http_version': '1.1',
        'method': 'POST',
        'scheme': 'http',
        'path': f'{path}/turns',
        'raw_path': f'{path}/turns'.encode(),
        'query_string': b'function_calls=true&tool_results=true',
        'headers': [
            (b'host', b'localhost'),
            (b'authorization', f'Bearer {key}'.encode()),
            (b'accept', b'text/event-stream'),
            (b'content-type', b'application/json'),
        ],
    }
    body: list[Message] = [{'type': 'http.request', 'body': b'{"prompt": "go"}', 'more_body': False}]

    async def receive() -> Message:
        if not body:
            await anyio.sleep_forever()
        return body.pop()

    await served.app(scope, receive, reader.send)


async def metric(client: Client, name: str) -> float:
    lines = (await client.get('/metrics')).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f'{name} '))


async def stream_all(served: Served, readers: list[Reader]) -> None:
    """Let all clients begin a turn; return when every run has ended, and all who read have read all."""
    key = await served.key()
    async with served.client(key) as client, anyio.create_task_group() as stalling:
        async with anyio.create_task_group() as reading:
            for reader in readers:
                group = reading if reader.stops_after is None else stalling
                group.start_soon(listen, served, key, await begin(client), reader)
        for run in served.state.runs.runs_of('ada'):
            await run.wait()
        stalling.cancel_scope.cancel()


async def test_many_stream_at_once_and_some_never_read_on(serve: Serve) -> None:
    """All runs end, all who read are told everything in order, and logs hold no more memory than they may."""
    chance = random.Random(60)
    readers = [Reader() for _ in range(STREAMS)]
    for reader in chance.sample(readers, STALLED):
        reader.stops_after = chance.randrange(1, 20)
    async with serve() as served, served.client(await served.key('admin')) as admin:
        await stream_all(served, readers)

        runs = served.state.runs.runs_of('ada')
        assert [run.state for run in runs] == ['complete'] * STREAMS
        assert await metric(admin, 'pydantic_deep_runs_running') == 0
        assert [len(each.pieces) for each in readers if each.stops_after is not None] == [
            each.stops_after for each in readers if each.stops_after is not None
        ]
        whole = [frames_in(b''.join(each.pieces)) for each in readers if each.stops_after is None]
        assert [said(frames) for frames in whole] == [f'Wait. {WORDS}'] * (STREAMS - STALLED)
        [numbers] = {tuple(int((frame.id or '').rpartition('.')[2]) for frame in frames) for frames in whole}
        assert list(numbers) == sorted(set(numbers))
        assert {len(run.log) for run in runs} == {numbers[-1]}
        [kinds] = {tuple(event for event, _ in told(frames)) for frames in whole}
        assert (kinds[0], kinds[-1], kinds.count('text')) == ('start', 'end', 101)
        memory = await metric(admin, 'pydantic_deep_log_memory_bytes')
        assert memory <= STREAMS * LOG_MEMORY_BYTES < await metric(admin, 'pydantic_deep_log_bytes')


async def begin(client: httpx.AsyncClient) -> str:
    """Return the path of a new conversation."""
    return (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
