"""A server that is killed during turns, and its successor on the same store."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from pydantic_deep.server import create_api_key
from pydantic_deep.store import open_store
from pydantic_deep.streaming import Frame, FrameReader

from .conftest import frames_in, said, told
from .restart_server import STEPS

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TURNS = 8
"""Number of active turns when the server is killed."""


@asynccontextmanager
async def server_on(
    directory: Path, key: str, *options: str, script: str = 'restart_server.py'
) -> AsyncGenerator[tuple[Any, httpx.AsyncClient]]:
    """Start a server process; kill it at the end if it is still running."""
    program = [sys.executable, str(Path(__file__).with_name(script)), str(directory), *options]
    with (directory / 'log').open('ab') as log:
        process = await anyio.open_process(program, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        port = int(await process.stdout.receive())
        headers = {'authorization': f'Bearer {key}'}
        async with httpx.AsyncClient(base_url=f'http://127.0.0.1:{port}', headers=headers, timeout=60) as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
        await process.aclose()


async def begin(client: httpx.AsyncClient, prompt: str) -> str:
    """Start a turn in a new conversation and return the id of the run."""
    path = (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']
    run = await client.post(f'{path}/turns', json={'prompt': prompt}, params={'wait': 'false'})
    return run.json()['id']


async def read_until_killed(client: httpx.AsyncClient, run_id: str, frames: list[Frame]) -> None:
    reader = FrameReader()
    try:
        async with client.stream('GET', f'/api/runs/{run_id}/events') as response:
            async for chunk in response.aiter_raw():
                frames += reader.feed(chunk)
    except httpx.TransportError:
        pass


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize('seed', [1, 2])
async def test_every_run_is_recovered_after_a_kill_and_no_call_runs_twice(tmp_path: Path, seed: int):
    """004-12, C9: a reconnected client receives the whole answer."""
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        key = await create_api_key(store, name='test', scopes=['run', 'approve'], owner='ada')
    received: dict[str, list[Frame]] = {}
    prompts: dict[str, str] = {}

    async with server_on(tmp_path, key) as (process, client):
        for number in range(TURNS):
            prompts[await begin(client, f't{number}')] = f't{number}'
        wanted = random.Random(seed).randrange(2, TURNS * STEPS - 4)
        async with anyio.create_task_group() as group:
            for run_id in prompts:
                group.start_soon(read_until_killed, client, run_id, received.setdefault(run_id, []))
            # no event reports the files of another process
            while len(lines(tmp_path / 'notes') + lines(tmp_path / 'looks')) < wanted:
                await anyio.lowlevel.checkpoint()
            process.kill()

    async with server_on(tmp_path, key) as (_, client):
        ended: dict[str, list[Frame]] = {}
        for run_id in prompts:
            last = received[run_id][-1].id if received[run_id] else None
            headers = {} if last is None else {'last-event-id': last}
            answer = await client.get(f'/api/runs/{run_id}/events', headers=headers)
            ended[run_id] = received[run_id] if answer.status_code == 204 else frames_in(answer.content)
            assert last is None or ended[run_id] is received[run_id] or ended[run_id][0].event == 'reset'
        states = [await _settle(client, run_id, lines(tmp_path / 'notes')) for run_id in prompts]
        heads = [await _head(client, run_id) for run_id in prompts]

    assert Counter(lines(tmp_path / 'notes')) == {f't{turn}/{step}': 1 for turn in range(TURNS) for step in (0, 2, 4)}
    for run_id, (run, was_asked) in zip(prompts, states, strict=True):
        prompt = prompts[run_id]
        text = ''.join(f'{prompt}/{step} ' for step in range(STEPS)) + f'All {STEPS} of {prompt}.'
        assert run['state'] == 'complete'
        assert run['output'] == f'All {STEPS} of {prompt}.'
        if not was_asked:
            assert said([frame for frame in ended[run_id] if frame.event != 'reset']) == text
            assert told(ended[run_id])[-1][1]['status'] == 'complete'
    assert heads == [True] * TURNS


async def _settle(client: httpx.AsyncClient, run_id: str, notes: list[str]) -> tuple[dict[str, Any], bool]:
    """Return an ended run. Approve a call that may have run only if the journal does not contain it."""
    run = (await client.get(f'/api/runs/{run_id}')).json()
    if run['state'] != 'awaiting_approval':
        return run, False
    answers = {
        each['pending_id']: {
            'decision': 'deny' if each['args']['key'] in notes else 'approve',
            'digest': each['view']['digest'],
        }
        for each in run['approvals']
    }
    path = f'/api/conversations/{run["conversation_id"]}'
    return (await client.post(f'{path}/resume', json={'answers': answers})).json(), True


async def _head(client: httpx.AsyncClient, run_id: str) -> bool:
    """Return whether the head of the conversation is the end of its turn."""
    run = (await client.get(f'/api/runs/{run_id}')).json()
    head = (await client.get(f'/api/conversations/{run["conversation_id"]}')).json()
    version = (await client.get(f'/api/versions/{head["head"]}')).json()
    return head['state'] == 'complete' and version['kind'] == 'turn'
