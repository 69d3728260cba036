"""A server that is killed during turns, and its successor on the same store."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from pydantic_deep.approvals import Approve, Deny
from pydantic_deep.client import ApiError, Client
from pydantic_deep.server import create_api_key
from pydantic_deep.store import open_store
from pydantic_deep.streaming import EndEvent, StartEvent, StreamEvent, TextEvent
from pydantic_deep.views import Run

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


async def begin(client: Client, prompt: str) -> str:
    """Start a turn in a new conversation and return the id of the run."""
    conversation = await client.conversations.create('analyst')
    return (await client.turns.start(conversation.id, prompt)).id


@dataclass
class Received:
    """What a client has received of a run."""

    events: list[StreamEvent] = field(default_factory=list[StreamEvent])
    position: str | None = None

    async def read_until_killed(self, client: Client, run_id: str) -> None:
        """Read events until the server is killed."""
        with suppress(ApiError):
            async with client.turns.events(run_id, max_reconnects=0) as events:
                async for event in events:
                    self.events.append(event)
                    self.position = events.last_event_id

    async def read_the_rest(self, client: Client, run_id: str) -> None:
        """Continue after the last event. If another `start` follows, all earlier events are void."""
        async with client.turns.events(run_id, last_event_id=self.position) as events:
            rest = [event async for event in events]
        if rest:
            assert isinstance(rest[0], StartEvent)
            self.events = rest


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize('seed', [1, 2])
async def test_every_run_is_recovered_after_a_kill_and_no_call_runs_twice(tmp_path: Path, seed: int):
    """004-12, C9: a reconnected client receives the whole answer."""
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        key = await create_api_key(store, name='test', scopes=['run', 'approve'], owner='ada')
    received: dict[str, Received] = {}
    prompts: dict[str, str] = {}

    async with server_on(tmp_path, key) as (process, http), Client(str(http.base_url), key) as client:
        for number in range(TURNS):
            prompts[await begin(client, f't{number}')] = f't{number}'
        wanted = random.Random(seed).randrange(2, TURNS * STEPS - 4)
        async with anyio.create_task_group() as group:
            for run_id in prompts:
                group.start_soon(received.setdefault(run_id, Received()).read_until_killed, client, run_id)
            # no event reports the files of another process
            while len(lines(tmp_path / 'notes') + lines(tmp_path / 'looks')) < wanted:
                await anyio.lowlevel.checkpoint()
            process.kill()

    async with server_on(tmp_path, key) as (_, http), Client(str(http.base_url), key) as client:
        for run_id in prompts:
            await received[run_id].read_the_rest(client, run_id)
        states = [await _settle(client, run_id, lines(tmp_path / 'notes')) for run_id in prompts]
        heads = [await _head(client, run_id) for run_id in prompts]

    assert Counter(lines(tmp_path / 'notes')) == {f't{turn}/{step}': 1 for turn in range(TURNS) for step in (0, 2, 4)}
    for run_id, (run, was_asked) in zip(prompts, states, strict=True):
        prompt = prompts[run_id]
        text = ''.join(f'{prompt}/{step} ' for step in range(STEPS)) + f'All {STEPS} of {prompt}.'
        assert run.state == 'complete'
        assert run.output == f'All {STEPS} of {prompt}.'
        if not was_asked:
            events = received[run_id].events
            assert ''.join(event.text for event in events if isinstance(event, TextEvent)) == text
            assert isinstance(events[-1], EndEvent)
            assert events[-1].status == 'complete'
    assert heads == [True] * TURNS


async def _settle(client: Client, run_id: str, notes: list[str]) -> tuple[Run, bool]:
    """Return an ended run. Approve a call that may have run only if the journal does not contain it."""
    run = await client.turns.get(run_id)
    if run.state != 'awaiting_approval':
        return run, False
    for approval in run.approvals:
        await client.approvals.answer(approval, Deny() if approval.args['key'] in notes else Approve())
    resumed = await client.turns.resume(run.conversation_id)
    return await client.turns.wait(resumed.id), True


async def _head(client: Client, run_id: str) -> bool:
    """Return whether the head of the conversation is the end of its turn."""
    run = await client.turns.get(run_id)
    conversation = await client.conversations.get(run.conversation_id)
    version = await client.versions.get(conversation.head or '')
    return conversation.state == 'complete' and version.kind == 'turn'
