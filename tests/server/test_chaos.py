"""Clients that come and go at random, and a server that is killed again and again: nothing is lost or done twice.

`test_reconnect` and `test_restart` have one of each. All chance is seeded; `make soak` does it for longer.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.server._api_keys import create_api_key
from pydantic_deep.store import open_store
from pydantic_deep.streaming import Frame, FrameReader
from pydantic_deep.testing import Answer, ScriptedModel, call

from .chaos_server import CHILD_PLAN, PLAN
from .conftest import Gate, Listen, Served, frames_in, said, told

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SOAK_ROUNDS = int(os.environ.get('SOAK_ROUNDS', '0'))
"""How long the long forms take; `make soak` sets it."""

ALL = {'function_calls': 'true', 'tool_results': 'true'}


# Clients that come and go

WORDS = ' '.join(f'word{number}' for number in range(150))
"""What a run says at the end, a piece for each word."""

RUNS = 4
CLIENTS = 5
"""How many clients watch each run."""
VISITS = 10
"""How often each of them leaves and comes back."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Write some files, wait, and say a lot."""
    count = len(messages) // 2
    if count < 8:
        return [f'Step {count}. ', call('write_file', path=f'/{count}.txt', content='x' * 300)]
    return call('hold') if count == 8 else WORDS


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    return {'analyst': create_deep_agent(ScriptedModel(then=answer), tools=[gate.hold])}


async def read_some(client: httpx.AsyncClient, path: str, last: str | None, limit_bytes: int) -> list[Frame]:
    """Read so many bytes of a stream after an event, leave, and return the frames that were whole."""
    frames: list[Frame] = []
    reader, seen = FrameReader(), 0
    headers = {} if last is None else {'last-event-id': last}
    async with client.stream('GET', path, headers=headers, params=ALL) as response:
        async for chunk in response.aiter_raw():
            frames += reader.feed(chunk[: max(0, limit_bytes - seen)])
            seen += len(chunk)
            if seen >= limit_bytes:
                break
    return frames


async def watch(client: httpx.AsyncClient, path: str, chance: random.Random, visits: int, gate: Gate) -> list[Frame]:
    """Watch a run in so many visits and one more, and return all that was told; half of the visits are before its end."""
    frames: list[Frame] = []
    for visit in range(visits):
        last = frames[-1].id if frames else None
        frames += await read_some(client, path, last, chance.randrange(1, 3000))
        if visit >= visits // 2:
            gate.opened.set()
    while not frames or frames[-1].event != 'end':
        frames += await read_some(client, path, frames[-1].id if frames else None, 10**7)
    return frames


async def visit_all(served: Served, listen: Listen, gate: Gate, seed: int, visits: int) -> int:
    """Let clients come and go, compare what each was told with the whole, and return how often they left."""
    chance = random.Random(seed)
    heard: dict[str, list[list[Frame]]] = {}
    async with listen(served.app) as url:
        headers = {'authorization': f'Bearer {await served.key()}'}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, limits=limits) as client:

            async def keep(path: str, own: random.Random) -> None:
                heard[path].append(await watch(client, path, own, visits, gate))

            async with anyio.create_task_group() as group:
                for _ in range(RUNS):
                    conversation = (await client.post('/api/conversations', json={'agent': 'analyst'})).json()['id']
                    turns = f'/api/conversations/{conversation}/turns'
                    run = await client.post(turns, json={'prompt': 'go'}, params={'wait': 'false'})
                    path = f'{run.headers["location"]}/events'
                    heard[path] = []
                    for _ in range(CLIENTS):
                        group.start_soon(keep, path, random.Random(chance.random()))
            for path, all_heard in heard.items():
                whole = frames_in((await client.get(path, params=ALL)).content)
                assert said(whole).endswith(WORDS)
                assert all_heard == [whole] * CLIENTS
    return RUNS * CLIENTS * visits


async def test_two_hundred_disconnects_and_reconnects_end_with_the_same_events(
    served: Served, listen: Listen, gate: Gate
) -> None:
    """004-12"""
    assert await visit_all(served, listen, gate, 200, VISITS) == 200


@pytest.mark.soak
@pytest.mark.skipif(SOAK_ROUNDS == 0, reason='`make soak` sets SOAK_ROUNDS')
async def test_clients_come_and_go_for_long(served: Served, listen: Listen, gate: Gate) -> None:
    for seed in range(5):
        await visit_all(served, listen, gate, seed, max(VISITS, SOAK_ROUNDS // 200))


# A server that is killed

TURNS = 6
"""How many conversations are at work in a round."""

KILLS = 3
"""How often the server is killed in a round."""

POLL_SECONDS = 0.005
"""How often is looked what another process does."""


@dataclass
class Place:
    """Where the server is now; it comes back at another port."""

    directory: Path
    key: str
    client: httpx.AsyncClient | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)

    async def serve(self, chance: random.Random) -> None:
        """Serve, kill, and serve again until all is done."""
        for _ in range(KILLS):
            more = chance.randrange(1, TURNS * (len(PLAN) + len(CHILD_PLAN)) // KILLS)
            await self._serve_until(self.lines() + more)
        await self._serve_until(None)

    async def _serve_until(self, lines: int | None) -> None:
        """Serve until so many lines were written, then kill; for ever if there is no number."""
        script = Path(__file__).with_name('chaos_server.py')
        with (self.directory / 'log').open('ab') as log:
            process = await anyio.open_process(
                [sys.executable, str(script), str(self.directory)], stdout=subprocess.PIPE, stderr=log
            )
        try:
            assert process.stdout is not None
            url = f'http://127.0.0.1:{int(await process.stdout.receive())}'
            headers = {'authorization': f'Bearer {self.key}'}
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as self.client:
                self._tell()
                while lines is None or self.lines() < lines:  # noqa: ASYNC110  # no event tells of another process
                    await anyio.sleep(POLL_SECONDS)
        finally:
            self.client = None
            process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()

    def lines(self) -> int:
        """Return how often tools ran."""
        return sum(len(lines(self.directory / name)) for name in ('notes', 'looks'))

    async def request(self, method: str, path: str, **options: Any) -> Any:
        """Ask, as often as it takes until a server answers."""
        while True:
            client = await self.here()
            try:
                answer = await client.request(method, path, **options)
            except (httpx.TransportError, RuntimeError):  # killed, or the client was closed when it was
                await anyio.sleep(POLL_SECONDS)
                continue
            assert answer.is_success or answer.status_code == 409, answer.text
            return answer.json()

    async def here(self) -> httpx.AsyncClient:
        """Return a client of the server that is there now, or will be."""
        while self.client is None:
            await self.changed.wait()
        return self.client

    def _tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@dataclass
class Talk:
    """One conversation, whose client comes back until its turn is complete."""

    place: Place
    prompt: str
    runs: dict[str, list[Frame]] = field(default_factory=dict[str, list[Frame]])
    """What each run told, after whatever it told anew."""
    states: Counter[str] = field(default_factory=Counter[str])
    """How often the conversation was found in which state."""

    async def take(self) -> None:
        """Say something, answer what waits, and read everything.

        The server may die with an answer that it has kept, before the run that it was for began: without any answer
        left to give, the run is asked for.
        """
        path = f'/api/conversations/{(await self.place.request("POST", "/api/conversations", json={"agent": "analyst"}))["id"]}'
        while True:
            found = await self.place.request('GET', path)
            if found['running']:
                await self._read(found['running'][-1])
                continue
            self.states[found['state']] += 1
            version = await self.place.request('GET', f'/api/versions/{found["head"]}')
            body: dict[str, Any] = {}
            if found['state'] == 'awaiting_approval':
                waiting = [each for each in found['approvals'] if each['status'] == 'pending']
                body = {'answers': {each['pending_id']: self._decide(each) for each in waiting}}
            elif version['kind'] == 'root':
                body = {'prompt': self.prompt}
            else:
                assert (found['state'], version['kind']) == ('complete', 'turn')
                return
            where = f'{path}/resume' if 'answers' in body else f'{path}/turns'
            run = await self.place.request('POST', where, json=body, params={'wait': 'false'})
            if 'id' in run:
                await self._read(run['id'])

    def _decide(self, approval: Mapping[str, Any]) -> dict[str, str]:
        """Approve what did not run; say what is known of what did."""
        key = approval['args'].get('key')
        if key in lines(self.place.directory / 'notes'):
            return {'decision': 'deny', 'reason': 'It ran.'}
        return {'decision': 'approve', 'digest': approval['view']['digest']}

    async def _read(self, run_id: str) -> None:
        """Read what a run tells until its end, through all that happens to the server."""
        frames = self.runs.setdefault(run_id, [])
        while not frames or frames[-1].event != 'end':
            client, reader = await self.place.here(), FrameReader()
            headers = {'last-event-id': frames[-1].id or ''} if frames else {}
            try:
                async with client.stream('GET', f'/api/runs/{run_id}/events', headers=headers) as response:
                    assert response.status_code in (200, 204), await response.aread()
                    if response.status_code == 204:
                        return
                    async for chunk in response.aiter_raw():
                        for frame in reader.feed(chunk):
                            if frame.event == 'reset':
                                frames.clear()
                            else:
                                frames.append(frame)
            except (httpx.TransportError, RuntimeError):
                await anyio.sleep(POLL_SECONDS)


async def play_round(directory: Path, seed: int) -> Counter[str]:
    """Play a round, check all that must hold, and return in which states conversations were found."""
    async with open_store(f'sqlite:///{directory}/agents.db') as store:
        key = await create_api_key(store, name='test', scopes=['run', 'approve', 'audit'], owner='ada')
    place = Place(directory, key)
    talks = [Talk(place, f't{number}') for number in range(TURNS)]
    runs: list[dict[str, Any]] = []
    audit: list[dict[str, Any]] = []
    async with anyio.create_task_group() as group:
        group.start_soon(place.serve, random.Random(seed))
        async with anyio.create_task_group() as talking:
            for talk in talks:
                talking.start_soon(talk.take)
        with anyio.fail_after(120):
            while True:  # records of dead processes are closed when all that can be recovered has been
                audit = (await place.request('GET', '/api/audit', params={'limit': 200}))['items']
                if 'running' not in {record['status'] for record in audit}:
                    break
                await anyio.sleep(POLL_SECONDS)
        runs += [await place.request('GET', f'/api/runs/{id}') for talk in talks for id in talk.runs]
        group.cancel_scope.cancel()

    keys = [f'{talk.prompt}/{step}' for talk in talks for step in (0, 3, 4)]
    keys += [f'{talk.prompt}/child/{step}' for talk in talks for step in (0, 2)]
    assert Counter(lines(directory / 'notes')) == dict.fromkeys(keys, 1)
    for talk in talks:
        last = list(talk.runs.values())[-1]
        assert said(last).endswith(f'All of {talk.prompt}.')
        assert told(last)[-1][1]['status'] == 'complete'
    assert {run['state'] for run in runs} <= {'complete', 'awaiting_approval'}
    assert len(audit) < 200
    assert {record['status'] for record in audit} <= {'success', 'awaiting_approval', 'crashed'}
    assert len([record for record in audit if record['status'] == 'success']) >= TURNS
    return sum((talk.states for talk in talks), Counter[str]())


async def test_a_server_that_is_killed_again_and_again_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    """004-12, C9: with approvals that wait, subagents at work, and clients that come back."""
    found = await play_round(tmp_path, 1)
    assert found['complete'] >= TURNS


@pytest.mark.soak
@pytest.mark.skipif(SOAK_ROUNDS == 0, reason='`make soak` sets SOAK_ROUNDS')
async def test_a_server_is_killed_for_long(tmp_path: Path) -> None:
    found = Counter[str]()
    for seed in range(100, 100 + max(1, SOAK_ROUNDS // 300)):
        directory = tmp_path / str(seed)
        directory.mkdir()
        found += await play_round(directory, seed)
    print(dict(found))
