"""Many concurrent conversations: no event is lost or reordered, and stalled clients do not block others.

`benchmarks/cases/ours_server.py` runs the same with 500 conversations over sockets, and measures it.
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
from pydantic_deep.server import ServerSettings
from pydantic_deep.testing import Answer, ScriptedModel, call

from .conftest import Client, Serve, Served, frames_in, said, told

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

STREAMS = 60
"""Number of concurrent streams."""

STALLED = 12
"""Number of clients that stop reading at a random event."""

WORDS = ' '.join(f'word{number}' for number in range(100))
"""The last text of each run, streamed word by word."""

LOG_MEMORY_BYTES = 4096
"""Memory limit of a log, smaller than each log of this test."""


@dataclass
class Meeting:
    """A tool in which all runs wait for each other, so that they stream at the same time."""

    missing: int
    complete: anyio.Event = field(default_factory=anyio.Event)

    async def meet(self) -> str:
        """Wait for all other runs."""
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
    """A client as an ASGI `send` function."""

    stops_after: int | None = None
    """Number of messages after which the client stops reading without a disconnect; `None` if it never stops."""
    pieces: list[bytes] = field(default_factory=list[bytes])

    async def send(self, message: Message) -> None:
        """Store a message. A stalled client blocks forever."""
        if len(self.pieces) == self.stops_after:
            await anyio.sleep_forever()
        self.pieces.append(message.get('body', b''))


async def listen(served: Served, key: str, path: str, reader: Reader) -> None:
    """Start a turn and receive its stream."""
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
    """Start a turn for each client. Return after all runs have ended and all active clients have read everything."""
    key = await served.key()
    async with served.client(key) as client, anyio.create_task_group() as stalling:
        async with anyio.create_task_group() as reading:
            for reader in readers:
                group = reading if reader.stops_after is None else stalling
                group.start_soon(listen, served, key, await begin(client), reader)
        for run in served.state.runs.runs_of('ada'):
            await run.wait()
        stalling.cancel_scope.cancel()


async def test_concurrent_streams_are_complete_despite_stalled_clients(serve: Serve) -> None:
    """All runs complete, all active clients receive every event in order, and the logs stay within their memory limit."""
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
