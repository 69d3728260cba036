"""CPU of a streamed event on the routes of other APIs, as a multiple of our own route: `python benchmarks/wires.py`.

An agent answers with 1,000 pieces of text, each of which is an event. The application is called in this process without a
socket and without a client, so that the figures contain only its own work: the run, its log, and the route. The CPU time
between the first piece and the last one is divided by the pieces, so that the start and the end of a turn do not count.

Each round measures every route once, in random order, and its ratio is that of a route to ours in the same round. The
median of the ratios is printed, with the quartiles, which show how much other work on the machine has disturbed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, MutableMapping
from typing import Any

from fastapi import FastAPI
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings, create_api_key, create_app
from pydantic_deep.store import open_store

PIECES = 1_000
"""Number of pieces of an answer."""

ROUNDS = 41
"""Number of measurements of each route."""

OURS = 'ours'
"""The name of our own route."""

_PIECE = 'a few words '
"""The text of a piece."""

_HEAD_START_SECONDS = 0.2
"""Seconds between the start of a turn and its first piece."""

_SKIPPED = 10
"""Number of pieces at the beginning that are not measured: the first one is encoded in another way."""

_SAID = [{'role': 'user', 'content': 'Hi'}]

WIRES: Mapping[str, tuple[str, dict[str, object]]] = {
    'OpenAI chat': ('/v1/chat/completions', {'model': 'clerk', 'messages': _SAID, 'stream': True}),
    'OpenAI responses': ('/v1/responses', {'model': 'clerk', 'input': 'Hi', 'stream': True}),
    'Anthropic': ('/v1/messages', {'model': 'clerk', 'max_tokens': 9, 'messages': _SAID, 'stream': True}),
    'Google': (
        '/v1beta/models/clerk:streamGenerateContent',
        {'contents': [{'role': 'user', 'parts': [{'text': 'Hi'}]}]},
    ),
}
"""The path and the body of a streamed request, by name."""


async def say(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    """Stream an answer. Its reader is there before the first piece: events that wait for a reader are read together."""
    await asyncio.sleep(_HEAD_START_SECONDS)
    for _ in range(PIECES):
        await asyncio.sleep(0)  # as a model's connection yields between pieces
        yield _PIECE


class Caller:
    """Calls an application without a socket."""

    def __init__(self, app: FastAPI, key: str) -> None:
        self._app = app
        self._headers = [
            (b'host', b'localhost'),
            (b'content-type', b'application/json'),
            (b'authorization', f'Bearer {key}'.encode()),
        ]

    async def call(self, method: str, path: str, body: object = None, *, clock: list[float] | None = None) -> bytes:
        """Return the body of a response, and append the CPU time of each piece that is sent to `clock`."""
        path, _, query = path.partition('?')
        requests = [{'type': 'http.request', 'body': b'' if body is None else json.dumps(body).encode()}]
        chunks: list[bytes] = []
        status: list[int] = []

        async def receive() -> dict[str, Any]:
            if not requests:
                await asyncio.Event().wait()
            return requests.pop()

        async def send(message: MutableMapping[str, Any]) -> None:
            status.append(message.get('status', 0))
            chunks.append(message.get('body', b''))
            if clock is not None:
                clock.extend([time.process_time()] * chunks[-1].count(_PIECE.encode()))

        scope = {
            'type': 'http', 'asgi': {'version': '3.0'}, 'http_version': '1.1', 'method': method, 'scheme': 'http',
            'path': path, 'raw_path': path.encode(), 'query_string': query.encode(), 'headers': self._headers,
            'client': ('127.0.0.1', 1), 'server': ('127.0.0.1', 80), 'root_path': '',
        }  # fmt: skip
        await self._app(scope, receive, send)
        if status[0] >= 300:
            raise RuntimeError(f'{method} {path} answered with {status[0]}: {b"".join(chunks)[:200]!r}')
        return b''.join(chunks)


async def turn(caller: Caller, name: str) -> float:
    """Stream a turn in a new conversation, and return the CPU microseconds of an event."""
    clock: list[float] = []
    gc.collect()
    if name == OURS:
        conversation = json.loads(await caller.call('POST', '/api/conversations', {'agent': 'clerk'}))['id']
        started = await caller.call('POST', f'/api/conversations/{conversation}/turns?wait=false', {'prompt': 'Hi'})
        await caller.call('GET', f'/api/runs/{json.loads(started)["id"]}/events', clock=clock)
    else:
        path, request = WIRES[name]
        await caller.call('POST', path, request, clock=clock)
    if len(clock) < PIECES:
        raise RuntimeError(f'The answer of {name} is incomplete.')
    return (clock[PIECES - 1] - clock[_SKIPPED]) / (PIECES - 1 - _SKIPPED) * 1e6


async def main(rounds: int) -> None:
    """Measure, and print a table."""
    settings = ServerSettings(requests_per_second=10_000, request_burst=10_000)
    async with open_store('memory:') as store:
        key = await create_api_key(store, name='bench', scopes=['run'])
        agent = create_deep_agent(FunctionModel(stream_function=say))
        app = create_app({'clerk': agent}, store, settings)
        async with app.router.lifespan_context(app):
            caller = Caller(app, key)
            names = [OURS, *WIRES]
            for name in names:
                await turn(caller, name)  # loads modules
            samples: dict[str, list[float]] = {name: [] for name in names}
            for _ in range(rounds):
                for name in random.sample(names, len(names)):
                    samples[name].append(await turn(caller, name))
    for name in names:
        ratios = [mine / ours for mine, ours in zip(samples[name], samples[OURS], strict=True)]
        low, median, high = statistics.quantiles(ratios, n=4)
        print(f'{name:17} {statistics.median(samples[name]):7.1f} µs {median:7.3f}× ({low:.3f} to {high:.3f})')


if __name__ == '__main__':
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else ROUNDS))
