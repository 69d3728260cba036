"""Outage of the database during a turn of a server process: PostgreSQL stops, or the disk is full.

The server is killed after its responses, and another one starts on the same store.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from pydantic_deep.server import create_api_key
from pydantic_deep.store import open_store

from .conftest import frames_in, told
from .test_restart import lines, server_on

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

POSTGRES = Path(__file__).parents[1] / 'store' / 'postgres_server.py'

DISK_BYTES = 8 * 1024 * 1024
"""Size of the disk, sufficient for a few turns."""

PATIENCE_SECONDS = 120
"""Timeout in seconds for hanging tests, far longer than any operation here."""


@dataclass(frozen=True, kw_only=True)
class Database:
    """A database that can fail and be repaired."""

    url: str
    fail: Callable[[], object]
    mend: Callable[[], object]


@contextmanager
def postgres(directory: Path) -> Generator[Database]:
    """Start a PostgreSQL that can be stopped as in a crash and restarted."""
    program = [sys.executable, str(POSTGRES), '--no-fsync']
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said, heard = process.stdin, process.stdout

        def ask(command: str) -> str:
            said.write(f'{command}\n')
            said.flush()
            return heard.readline().strip()

        heard.readline()
        yield Database(url=ask('database'), fail=partial(ask, 'stop'), mend=partial(ask, 'start'))
        said.close()


@contextmanager
def small_disk(directory: Path) -> Generator[Database]:
    """Mount a small disk that can be filled completely and emptied."""
    disk = directory / 'disk'
    disk.mkdir()
    mounted = subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', f'size={DISK_BYTES},mode=700', 'tmpfs', str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f'mounting a small disk requires privileges: {mounted.stderr.strip()}')
    filler = disk / 'filler'

    def fill() -> None:
        with filler.open('wb', buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:  # the disk is full
                pass

    try:
        yield Database(url=f'sqlite:///{disk}/agents.db', fail=fill, mend=filler.unlink)
    finally:
        subprocess.run(['umount', '--lazy', str(disk)], check=True)


@pytest.fixture(params=[postgres, small_disk], ids=['postgresql', 'full disk'])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Database]:
    with request.param(tmp_path) as database:
        yield database


class Gate:
    """Blocks turns: each connects to the port, and continues when the connection is closed."""

    def __init__(self) -> None:
        self._socket = socket.create_server(('127.0.0.1', 0))
        self._socket.setblocking(False)
        self.port = str(self._socket.getsockname()[1])

    async def reached(self) -> socket.socket:
        """Wait for the next turn and return its connection. Closing it lets the turn continue."""
        return (await asyncio.wait_for(asyncio.get_running_loop().sock_accept(self._socket), PATIENCE_SECONDS))[0]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def gate() -> Generator[Gate]:
    gate = Gate()
    yield gate
    gate.close()


async def start_turn(client: httpx.AsyncClient, path: str, prompt: str) -> str:
    begun = await client.post(f'{path}/turns', json={'prompt': prompt}, params={'wait': 'false'})
    return begun.json()['id']


async def end_of(client: httpx.AsyncClient, run_id: str) -> Any:
    """Wait for the end of a run and return its last event."""
    return last_of((await asyncio.wait_for(client.get(f'/api/runs/{run_id}/events'), PATIENCE_SECONDS)).content)


def last_of(events: bytes) -> Any:
    """Return the last event of a run."""
    kind, end = told(frames_in(events))[-1]
    assert kind == 'end'
    return end


async def test_run_interrupted_by_an_outage_is_suspended_until_cancelled(
    database: Database, gate: Gate, tmp_path: Path
) -> None:
    """A run that can continue is suspended, not failed. If its conversation has continued, it is not resumed at
    startup. A cancellation is durable before it is acknowledged, so it survives a kill."""
    async with open_store(database.url) as store:
        key = await create_api_key(store, name='test', scopes=['run'], owner='ada')

    @asynccontextmanager
    async def server() -> AsyncGenerator[tuple[Any, httpx.AsyncClient]]:
        async with server_on(tmp_path, key, database.url, gate.port, script='outage_server.py') as opened:
            yield opened

    async with server() as (process, client):
        path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
        first = await start_turn(client, path, 'first')
        waiting = await gate.reached()
        async with client.stream('GET', f'/api/runs/{first}/events') as events:  # connects before the outage
            await asyncio.to_thread(database.fail)
            waiting.close()
            assert last_of(await asyncio.wait_for(events.aread(), PATIENCE_SECONDS))['status'] == 'suspended'
        refused = await client.post(f'/api/runs/{first}/cancel')
        assert refused.status_code == 503, 'an unstored cancellation is not acknowledged'
        await asyncio.to_thread(database.mend)
        assert (await client.get(f'/api/runs/{first}')).json()['state'] == 'suspended'
        second = await start_turn(client, path, 'second')
        (await gate.reached()).close()
        assert (await end_of(client, second))['status'] == 'complete'
        process.kill()

    async with server() as (process, client):
        run = (await client.get(f'/api/runs/{first}')).json()
        assert (run['state'], run['has_moved_on']) == ('suspended', True)
        assert (await client.get(f'/api/runs/{second}')).json()['state'] == 'complete'
        cancelled = await client.post(f'/api/runs/{first}/cancel')
        process.kill()
    assert (cancelled.status_code, cancelled.json()['state']) == (200, 'interrupted')

    async with server() as (_, client):
        assert (await client.get(f'/api/runs/{first}')).json()['state'] == 'interrupted'
        assert (await client.get(path)).json()['suspended'] == []
    assert lines(tmp_path / 'sent') == ['second']


async def test_run_interrupted_by_an_outage_is_resumed_at_startup(
    database: Database, gate: Gate, tmp_path: Path
) -> None:
    """If the conversation has not continued, the run of a killed server resumes at startup and executes every call
    once."""
    async with open_store(database.url) as store:
        key = await create_api_key(store, name='test', scopes=['run'], owner='ada')
    options = database.url, gate.port

    async with server_on(tmp_path, key, *options, script='outage_server.py') as (process, client):
        path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
        run_id = await start_turn(client, path, 'only')
        waiting = await gate.reached()
        await asyncio.to_thread(database.fail)
        process.kill()
        waiting.close()
        await asyncio.to_thread(database.mend)

    async with server_on(tmp_path, key, *options, script='outage_server.py') as (_, client):
        (await gate.reached()).close()  # read-only calls run again
        assert (await end_of(client, run_id))['status'] == 'complete'
        run = (await client.get(f'/api/runs/{run_id}')).json()
        assert (run['state'], run['output'], run['error']) == ('complete', 'Sent only.', None)
    assert lines(tmp_path / 'sent') == ['only']
