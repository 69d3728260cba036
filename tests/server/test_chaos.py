"""Clients that reconnect at random, and a server that is killed repeatedly: nothing is lost or executed twice.

`test_event_stream` and `test_restart` test single cases. All randomness is seeded. `make soak` runs longer forms.
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
from pydantic_deep.server import create_api_key
from pydantic_deep.store import open_store
from pydantic_deep.streaming import Frame, FrameReader
from pydantic_deep.testing import Answer, ScriptedModel, call

from .chaos_server import CHILD_PLAN, PLAN
from .conftest import Gate, Listen, Served, frames_in, said, told

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SOAK_ROUNDS = int(os.environ.get('SOAK_ROUNDS', '0'))
"""Number of rounds of the soak tests, set by `make soak`."""

ALL = {'function_calls': 'true', 'tool_results': 'true'}


# Reconnecting clients

WORDS = ' '.join(f'word{number}' for number in range(150))
"""The last text of a run, streamed word by word."""

RUNS = 4
CLIENTS = 5
"""Number of clients per run."""
VISITS = 10
"""Number of visits per client before the last one."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Write some files, hold, and answer with a long text."""
    count = len(messages) // 2
    if count < 8:
        return [f'Step {count}. ', call('write_file', path=f'/{count}.txt', content='x' * 300)]
    return call('hold') if count == 8 else WORDS


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    return {'analyst': create_deep_agent(ScriptedModel(then=answer), tools=[gate.hold])}


async def read_some(client: httpx.AsyncClient, path: str, last: str | None, limit_bytes: int) -> list[Frame]:
    """Read `limit_bytes` of a stream after an event, disconnect, and return the complete frames."""
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
    """Read the events of a run in `visits` connections and a last one, and return them. Half of the visits precede its
    end."""
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
    """Run all clients, compare the events of each with the whole stream, and return the number of disconnects."""
    chance = random.Random(seed)
    received: dict[str, list[list[Frame]]] = {}
    async with listen(served.app) as url:
        headers = {'authorization': f'Bearer {await served.key()}'}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60, limits=limits) as client:

            async def keep(path: str, own: random.Random) -> None:
                received[path].append(await watch(client, path, own, visits, gate))

            async with anyio.create_task_group() as group:
                for _ in range(RUNS):
                    conversation = (await client.post('/api/conversations', json={'agent': 'analyst'})).json()['id']
                    turns = f'/api/conversations/{conversation}/turns'
                    run = await client.post(turns, json={'prompt': 'go'}, params={'wait': 'false'})
                    path = f'{run.headers["location"]}/events'
                    received[path] = []
                    for _ in range(CLIENTS):
                        group.start_soon(keep, path, random.Random(chance.random()))
            for path, all_received in received.items():
                whole = frames_in((await client.get(path, params=ALL)).content)
                assert said(whole).endswith(WORDS)
                assert all_received == [whole] * CLIENTS
    return RUNS * CLIENTS * visits


async def test_two_hundred_reconnects_deliver_the_same_events(served: Served, listen: Listen, gate: Gate) -> None:
    """004-12: SSE streaming with tool calls, auditing, multi-model schemes, as one experience."""
    assert await visit_all(served, listen, gate, 200, VISITS) == 200


@pytest.mark.soak
@pytest.mark.skipif(SOAK_ROUNDS == 0, reason='`make soak` sets SOAK_ROUNDS')
async def test_reconnects_soak(served: Served, listen: Listen, gate: Gate) -> None:
    for seed in range(5):
        await visit_all(served, listen, gate, seed, max(VISITS, SOAK_ROUNDS // 200))


# A server that is killed

TURNS = 6
"""Number of concurrent conversations in a round."""

KILLS = 3
"""Number of kills of the server in a round."""

POLL_SECONDS = 0.005
"""Polling interval for the state of other processes."""


@dataclass
class Place:
    """The current server process. Each restart uses another port."""

    directory: Path
    key: str
    client: httpx.AsyncClient | None = None
    changed: anyio.Event = field(default_factory=anyio.Event)

    async def serve(self, chance: random.Random) -> None:
        """Start and kill the server repeatedly, then serve until cancelled."""
        for _ in range(KILLS):
            more = chance.randrange(1, TURNS * (len(PLAN) + len(CHILD_PLAN)) // KILLS)
            await self._serve_until(self.lines() + more)
        await self._serve_until(None)

    async def _serve_until(self, lines: int | None) -> None:
        """Serve until the tools have written `lines` lines, then kill the server; without a number, serve until
        cancelled."""
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
                while lines is None or self.lines() < lines:  # noqa: ASYNC110  # no event reports them
                    await anyio.sleep(POLL_SECONDS)
        finally:
            self.client = None
            process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()

    def lines(self) -> int:
        """Return the number of tool calls that ran."""
        return sum(len(lines(self.directory / name)) for name in ('notes', 'looks'))

    async def request(self, method: str, path: str, **options: Any) -> Any:
        """Send a request until a server responds."""
        while True:
            client = await self.here()
            try:
                answer = await client.request(method, path, **options)
            except (httpx.TransportError, RuntimeError):  # killed, or the client was closed
                await anyio.sleep(POLL_SECONDS)
                continue
            assert answer.is_success or answer.status_code == 409, answer.text
            return answer.json()

    async def here(self) -> httpx.AsyncClient:
        """Return a client of the current server, or wait for the next one."""
        while self.client is None:
            await self.changed.wait()
        return self.client

    def _tell(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@dataclass
class ScriptedClient:
    """A conversation whose client reconnects until the turn is complete."""

    place: Place
    prompt: str
    runs: dict[str, list[Frame]] = field(default_factory=dict[str, list[Frame]])
    """The events of each run since the last reset."""
    states: Counter[str] = field(default_factory=Counter[str])
    """Number of times that the conversation was found in each state."""

    async def take(self) -> None:
        """Send the prompt, answer approvals, and read all events until the turn is complete.

        The server may crash after it stored an answer and before it started the run. Then the client resumes without
        answers.
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
        """Approve calls that did not run, and deny calls that ran."""
        key = approval['args'].get('key')
        if key in lines(self.place.directory / 'notes'):
            return {'decision': 'deny', 'reason': 'It ran.'}
        return {'decision': 'approve', 'digest': approval['view']['digest']}

    async def _read(self, run_id: str) -> None:
        """Read the events of a run to the end, across restarts of the server."""
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
    """Run a round, check all invariants, and return the number of states found."""
    async with open_store(f'sqlite:///{directory}/agents.db') as store:
        key = await create_api_key(store, name='test', scopes=['run', 'approve', 'audit'], owner='ada')
    place = Place(directory, key)
    clients = [ScriptedClient(place, f't{number}') for number in range(TURNS)]
    runs: list[dict[str, Any]] = []
    audit: list[dict[str, Any]] = []
    async with anyio.create_task_group() as group:
        group.start_soon(place.serve, random.Random(seed))
        async with anyio.create_task_group() as client_group:
            for talk in clients:
                client_group.start_soon(talk.take)
        with anyio.fail_after(120):
            while True:  # recovery closes the records of crashed processes last
                audit = (await place.request('GET', '/api/audit', params={'limit': 200}))['items']
                if 'running' not in {record['status'] for record in audit}:
                    break
                await anyio.sleep(POLL_SECONDS)
        runs += [await place.request('GET', f'/api/runs/{id}') for talk in clients for id in talk.runs]
        group.cancel_scope.cancel()

    keys = [f'{talk.prompt}/{step}' for talk in clients for step in (0, 3, 4)]
    keys += [f'{talk.prompt}/child/{step}' for talk in clients for step in (0, 2)]
    assert Counter(lines(directory / 'notes')) == dict.fromkeys(keys, 1)
    for talk in clients:
        last = list(talk.runs.values())[-1]
        assert said(last).endswith(f'All of {talk.prompt}.')
        assert told(last)[-1][1]['status'] == 'complete'
    assert {run['state'] for run in runs} <= {'complete', 'awaiting_approval'}
    assert len(audit) < 200
    assert {record['status'] for record in audit} <= {'success', 'awaiting_approval', 'crashed'}
    assert len([record for record in audit if record['status'] == 'success']) >= TURNS
    return sum((talk.states for talk in clients), Counter[str]())


async def test_repeatedly_killed_server_completes_every_call_once(tmp_path: Path) -> None:
    """004-12, C9: pending approvals, active subagents and reconnecting clients."""
    found = await play_round(tmp_path, 1)
    assert found['complete'] >= TURNS


@pytest.mark.soak
@pytest.mark.skipif(SOAK_ROUNDS == 0, reason='`make soak` sets SOAK_ROUNDS')
async def test_killed_server_soak(tmp_path: Path) -> None:
    found = Counter[str]()
    for seed in range(100, 100 + max(1, SOAK_ROUNDS // 300)):
        directory = tmp_path / str(seed)
        directory.mkdir()
        found += await play_round(directory, seed)
    print(dict(found))
