"""Ours with a server: the cost of many concurrent streams over sockets, with some clients that stop reading."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from measure import Case, Figures, Sizes

from pydantic_deep.streaming import FrameReader

STALLED_SHARE = 10
"""One in this many clients stops reading."""

STALLED_WORDS = 20
"""Multiple of words in the stream of a client that stops reading: more than sockets buffer."""


@dataclass
class Server:
    """The server, in a separate process."""

    process: asyncio.subprocess.Process
    client: httpx.AsyncClient

    async def used(self) -> dict[str, float]:
        """Return CPU seconds and peak memory since its start."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b'\n')
        return json.loads(await self.process.stdout.readline())

    async def metric(self, name: str) -> float:
        """Return a value from `/metrics`."""
        text = (await self.client.get('/metrics')).text
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f'{name} '))


@dataclass
class StreamOutput:
    """The events that one client received."""

    text: str = ''
    numbers: list[int] = field(default_factory=list[int])
    """The numbers of the events."""
    last: str | None = None
    """The type of the last event."""
    first_s: float = 0.0
    """Time to the first words in seconds."""


def streams(sizes: Sizes) -> Figures:
    """Return the cost of streaming many conversations concurrently, with some clients that stop reading.

    Raises:
        RuntimeError: An event was lost or reordered, or a run did not end.
    """
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_streams(Path(directory), sizes.streams, sizes.stream_words))


async def _streams(directory: Path, count: int, words: int) -> Figures:
    chance = random.Random(count)
    stalled = set(chance.sample(range(count), count // STALLED_SHARE))
    async with _server(directory, count) as server:
        paths = [
            (await server.client.post('/api/conversations', json={'agent': 'talker'})).headers['location']
            for _ in range(count)
        ]
        before = await server.used()
        start = time.perf_counter()
        release = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            halves = [
                group.create_task(_stall(server, paths[number], words * STALLED_WORDS, chance.random(), release))
                for number in stalled
            ]
            whole = [
                group.create_task(_listen(server, path, words))
                for number, path in enumerate(paths)
                if number not in stalled
            ]
            outputs = [await task for task in whole]
            await _wait_for_all(server, count)
            seconds = time.perf_counter() - start
            after = await server.used()
            log_bytes = await server.metric('pydantic_deep_log_bytes')
            log_memory_bytes = await server.metric('pydantic_deep_log_memory_bytes')
            release.set()
        left = [await task for task in halves]
    _check(outputs, left, words)
    made = sum(len(output.numbers) for output in outputs) + words * STALLED_WORDS * len(left)
    firsts = sorted(output.first_s for output in outputs)
    return {
        'server_events_s': made / seconds,
        'server_event_us': (after['cpu_s'] - before['cpu_s']) / made * 1e6,
        'server_stream_kib': (after['peak_kib'] - before['peak_kib']) / count,
        'server_first_ms': statistics.median(firsts) * 1000,
        'server_first_late_ms': firsts[len(firsts) * 95 // 100] * 1000,
        'server_log_mib': log_bytes / 2**20,
        'server_log_memory_mib': log_memory_bytes / 2**20,
    }


async def _listen(server: Server, path: str, words: int) -> StreamOutput:
    """Start a turn and read all its events."""
    output, reader, start = StreamOutput(), FrameReader(), time.perf_counter()
    async with _turn(server, path, words) as response:
        async for chunk in response.aiter_raw():
            for frame in reader.feed(chunk):
                output.last = frame.event
                if frame.id is not None:
                    output.numbers.append(int(frame.id.rpartition('.')[2]))
                if frame.event == 'text':
                    output.text += json.loads(frame.data)['text']
                    output.first_s = output.first_s or time.perf_counter() - start
    return output


async def _stall(server: Server, path: str, words: int, share: float, release: asyncio.Event) -> int:
    """Start a turn, read a part of it, then stop until the end; return the number of bytes read."""
    wanted, read = share * words * 20, 0
    async with _turn(server, path, words) as response:
        async for chunk in response.aiter_raw():
            read += len(chunk)
            if read >= wanted:
                break
        await release.wait()
    return read


@asynccontextmanager
async def _turn(server: Server, path: str, words: int) -> AsyncGenerator[httpx.Response]:
    body, headers = {'prompt': str(words)}, {'accept': 'text/event-stream'}
    async with server.client.stream('POST', f'{path}/turns', json=body, headers=headers) as response:
        response.raise_for_status()
        yield response


async def _wait_for_all(server: Server, count: int) -> None:
    """Wait until all runs have ended, including those of clients that do not read."""
    while await server.metric('pydantic_deep_runs_running'):  # noqa: ASYNC110  # the runs are in another process
        await asyncio.sleep(0.05)
    text = (await server.client.get('/metrics')).text
    ended = re.findall(r'^pydantic_deep_runs_total\{agent="talker",state="(\w+)"\} (\S+)$', text, re.MULTILINE)
    if ended != [('complete', f'{count:.1f}')]:
        raise RuntimeError(f'Of {count} runs, these ended: {ended}.')


def _check(outputs: list[StreamOutput], left: list[int], words: int) -> None:
    wanted = 'Wait. ' + ' '.join(f'word{number}' for number in range(words))
    for output in outputs:
        if output.text != wanted or output.last != 'end' or output.numbers != sorted(set(output.numbers)):
            raise RuntimeError(
                f'A client received {len(output.text)} of {len(wanted)} characters; its last event was {output.last}.'
            )
    if not all(left):
        raise RuntimeError('A client that stops reading had not read anything.')


@asynccontextmanager
async def _server(directory: Path, count: int) -> AsyncGenerator[Server]:
    script = Path(__file__).with_name('server_process.py')
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(directory), str(count), stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ready = json.loads(await process.stdout.readline())
    transport = httpx.AsyncHTTPTransport(
        limits=httpx.Limits(max_connections=None),
        socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 2**10)],
    )
    headers = {'authorization': f'Bearer {ready["key"]}'}
    url = f'http://127.0.0.1:{ready["port"]}'
    async with httpx.AsyncClient(transport=transport, base_url=url, headers=headers, timeout=None) as client:
        yield Server(process, client)
    process.stdin.close()
    await process.wait()


CASES: dict[str, Case] = {'server-streams': streams}
"""The cases of the server, by name."""
