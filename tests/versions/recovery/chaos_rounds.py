"""A program that disturbs servers, workers, PostgreSQL and object storage while they run turns, and checks the result.

    python tests/versions/recovery/chaos_rounds.py --rounds 10 --seed 1 --files DIRECTORY

In each round, clients begin turns on random servers and follow them, reconnecting with `Last-Event-ID` when a connection
ends. Meanwhile one random fault occurs, and is repaired. Approvals are answered, those of calls that may have run after
the repair. When all runs have ended, `kill_checks` and `_check_round` check everything. The last line of the output is
a JSON object with the counts; `wrong` lists violations.

Servers and workers are the commands of `pydantic-deep`, forked from a process that has imported most modules. If the
source changes meanwhile, restarted ones fail: run it in a clone of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import httpx
from chaos_agent import ChaosJournal, large_file, make_chaos_agent, run_command
from kill_agent import Agent, prompt_of
from kill_checks import Checks

from pydantic_deep import DeepAgentDeps
from pydantic_deep.dispatch import Dispatcher, open_dispatcher, submit
from pydantic_deep.server import create_api_key
from pydantic_deep.store import SqlStore, StoreUnavailableError, new_id, open_store
from pydantic_deep.store.postgres._driver import connect
from pydantic_deep.streaming import Frame, FrameReader
from pydantic_deep.versions import TurnOptions, VersionedAgent
from pydantic_deep_backends import digest_of
from tests.dispatch.temporal_server import running_temporal
from tests.store.conftest import Ask, running_postgres, running_s3, s3_environment
from tests.store.ports import free_port
from tests.store.s3_server import BUCKET

T = TypeVar('T')

TURNS = 2
"""Number of turns of a conversation: one is sent to a server, the others are queued behind it."""

STALL_SECONDS = 10.0
PATIENCE_SECONDS = 90.0
"""How long a round may take."""

FAULTS = ('kill-worker', 'kill-server', 'stall-worker', 'stall-server', 'partition-worker', 'cut', 'storage')
"""The faults without options of their own."""

ALL_EVENTS = {'function_calls': 'true', 'tool_results': 'true'}

_CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    ' AND pid <> pg_backend_pid() AND random() < $1'
)


class Node:
    """A server or a worker."""

    def __init__(self, start: Callable[[], BaseProcess], url: str = '') -> None:
        self.start = start
        self.url = url
        self.process = start()

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def restart(self) -> None:
        self.process = self.start()


@dataclass(kw_only=True)
class Talk:
    """A conversation with its client."""

    id: str
    run_ids: list[str]
    frames: dict[str, list[Frame]] = field(default_factory=dict[str, list[Frame]], repr=False)
    problem: object = None
    """The last error that a server answered, for reports."""


class Fleet:
    """The processes, and the faults that they can have."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self._files: Path = options.files
        self._storage = stack.enter_context(ExitStack())
        self._ask: Ask = stack.enter_context(running_postgres('--release', str(options.release)))
        self.url = self._ask('database')
        self._port = free_port(4)
        self._pid = self._start_storage()
        self.blobs = f's3://{BUCKET}/chaos'
        self.dispatcher: str | None = None
        if options.temporal:
            self._temporal = stack.enter_context(running_temporal(options.files))
            self.dispatcher = f'temporal://127.0.0.1:{self._temporal.port}'
        self.journal = ChaosJournal(options.files / 'journal')
        self._context = get_context('forkserver')
        self._context.set_forkserver_preload(['chaos_agent', 'pydantic_deep.store.postgres', 'pydantic_deep.server'])
        self.environment = {
            **s3_environment(self._port),
            'PYDANTIC_DEEP_BLOBS': self.blobs,
            'PYDANTIC_DEEP_SERVER_KEEPALIVE_SECONDS': '1',
            'PYDANTIC_DEEP_SERVER_REQUESTS_PER_SECOND': '100000',
            'PYDANTIC_DEEP_SERVER_REQUEST_BURST': '100000',
            'PYDANTIC_DEEP_SERVER_MAX_RUNS_PER_KEY': '1000',
        }
        if self.dispatcher:
            self.environment['PYDANTIC_DEEP_SERVER_DISPATCHER'] = self.dispatcher
        os.environ.update(self.environment)
        os.environ['PYTHONPATH'] = os.pathsep.join(sys.path)  # for the process that imports and forks
        self.servers = [self._server() for _ in range(options.servers)]
        self.workers = [Node(partial(self._start, ['worker'])) for _ in range(options.workers)]
        self.nodes = [*self.servers, *self.workers]
        stack.callback(lambda: [node.kill() for node in self.nodes])

    def _start_storage(self) -> int:
        return self._storage.enter_context(running_s3(self._port, self._files / 's3'))

    def _server(self) -> Node:
        port = free_port()
        return Node(partial(self._start, ['serve', '--no-worker', '--port', str(port)]), f'http://127.0.0.1:{port}')

    def _start(self, arguments: Sequence[str]) -> BaseProcess:
        command = [*arguments, '--store', self.url]
        log = self._files / f'{arguments[0]}.log'
        paths = self.environment, self._files / 'journal', log
        process = self._context.Process(target=run_command, args=(command, *paths), daemon=True)
        process.start()
        return process

    async def disturb(self, fault: str, dice: random.Random, busy: set[int]) -> None:
        """Cause a fault and repair it; workers with runs, which are `busy`, are preferred."""
        kind, _, whom = fault.partition('-')
        nodes = self.servers if whom == 'server' else self.workers
        node = dice.choice([node for node in nodes if node.process.pid in busy] or nodes)
        match kind:
            case 'kill':
                node.kill()
            case 'stall':
                node.signal(signal.SIGSTOP)
            case 'partition':  # its connections end, so that others take over its runs before it continues
                node.signal(signal.SIGSTOP)
                await self._cut_connections(1.0)
            case 'cut':
                await self._cut_connections(dice.choice([0.3, 1.0]))
            case 'storage':
                os.kill(self._pid, signal.SIGKILL)
                await asyncio.to_thread(self._storage.close)
            case 'database':
                await asyncio.to_thread(self._ask, 'stop')
            case _:
                self._temporal.kill()
        await asyncio.sleep(STALL_SECONDS if kind in ('stall', 'partition') else dice.uniform(0, 3))
        match kind:
            case 'kill':
                node.restart()
            case 'stall' | 'partition':
                node.signal(signal.SIGCONT)
            case 'cut':
                await self._cut_connections(dice.choice([0.3, 1.0]))
            case 'storage':
                self._pid = await asyncio.to_thread(self._start_storage)
            case 'database':
                await asyncio.to_thread(self._ask, 'start')
            case _:
                await self._temporal.start()

    async def _cut_connections(self, share: float) -> None:
        connection = await connect(self.url)
        await connection.fetch(_CUT, share)
        await connection.close()


class Rounds:
    """The clients and the person who answers approvals, round after round."""

    def __init__(
        self, fleet: Fleet, store: SqlStore, client: httpx.AsyncClient, owner: str, dispatcher: Dispatcher | None
    ) -> None:
        self._fleet = fleet
        self._store = store
        self._client = client
        self._owner = owner
        self._dispatcher = dispatcher
        self._agent: Agent = VersionedAgent(make_chaos_agent(fleet.journal), store, make_deps=DeepAgentDeps)
        self._dice = random.Random()
        self._repaired = asyncio.Event()
        self._approved: Counter[str] = Counter()
        """The number of times that a call which may have run was approved, by key."""
        self._read: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def run(self, name: str, fault: str, conversations: int) -> None:
        self._dice = random.Random(name)
        self._repaired = asyncio.Event()
        self.wrong = []
        talks: list[Talk] = []
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
                for _ in range(conversations):
                    group.create_task(self._talk(talks))
                await asyncio.sleep(self._dice.uniform(0.1, 3))
                await self._fleet.disturb(fault, self._dice, await self._patiently(self._busy))
                await asyncio.sleep(0.5)  # a process that was stopped executes what it had begun
                self._repaired.set()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._check_round(talks)
        except TimeoutError:
            runs = await self._store.queue.list()
            self.wrong.append(f'something has not ended: {runs} of {talks}')
        except Exception:
            self.wrong.append(f'{traceback.format_exc()} of {talks}')

    async def _talk(self, talks: list[Talk]) -> None:
        """Run the turns of a conversation and follow them, answer approvals, and follow the resumed runs."""
        created = await self._request('POST', '/api/conversations', json={'agent': 'killed'})
        talk = Talk(id=created.json()['id'], run_ids=[])
        talks.append(talk)
        turns: list[str] = [await self._begin(talk, 'turns', {'prompt': prompt_of(talk.id, 0)})]
        turns += [await self._queue(talk, prompt_of(talk.id, turn)) for turn in range(1, TURNS)]
        async with asyncio.TaskGroup() as group:
            for run_id in turns:
                group.create_task(self._follow_turn(talk, run_id))

    async def _follow_turn(self, talk: Talk, run_id: str) -> None:
        while True:
            self.counts['runs'] += 1
            frames = talk.frames[run_id] = []
            await self._follow(run_id, frames)
            end = frames[-1].data if frames else ''
            if '"status":"awaiting_approval"' not in end:
                self._expect('"status":"complete"' in end, f'the run {run_id} ends with {end}')
                return
            run_id = await self._answer(talk)

    async def _answer(self, talk: Talk) -> str:
        """Answer the pending approvals like a person who checks whether a call has happened; return the new run."""
        answers: dict[str, Any] = {}
        page = await self._request('GET', '/api/approvals', params={'conversation': talk.id, 'limit': 200})
        for item in page.json()['items']:
            preview, key = item['view']['preview'], item['args'].get('key')
            decision: dict[str, Any] = {'decision': 'approve', 'digest': item['view']['digest']}
            if preview is not None and ''.join(preview['notice']).startswith('This call may have run'):
                await self._repaired.wait()
                self.counts['asked'] += 1
                if key in self._fleet.journal.lines():
                    decision = {'decision': 'deny', 'reason': 'It has happened.'}
                else:
                    self._approved[key] += 1
            answers[item['pending_id']] = decision
        return await self._begin(talk, 'resume', {'answers': answers})

    async def _begin(self, talk: Talk, route: str, body: dict[str, Any]) -> str:
        """Begin a run, and return its id. If a server gives no answer, it may have begun."""
        while True:
            problem: dict[str, Any] = {}
            with suppress(httpx.TransportError):
                url = f'{self._server()}/api/conversations/{talk.id}/{route}'
                response = await self._client.post(url, json=body, params={'wait': 'false'})
                if response.status_code == 202:
                    return self._known(talk, response.json()['id'])
                problem = response.json()['error']
            if problem.get('type') not in (None, 'unavailable', 'conflict'):
                raise AssertionError(problem)
            talk.problem = problem
            self.counts['repeated'] += 1
            await asyncio.sleep(0.05)
            listed = await self._request('GET', '/api/runs', params={'conversation': talk.id, 'limit': 200})
            for id in [run['id'] for run in listed.json()['items']] + [problem.get('run_id')]:
                if id is not None and id not in talk.run_ids:
                    return self._known(talk, id)
            if problem.get('status'):  # answered, but not resumed
                body = {'answers': {}}

    async def _queue(self, talk: Talk, prompt: str) -> str:
        """Queue a turn behind the others of a conversation, and return its run."""
        id = self._known(talk, new_id())
        options = TurnOptions(prompt=prompt, run_id=id)
        conversation = self._agent.conversation(talk.id)

        async def once() -> None:
            if await self._store.queue.get(id) is None:
                await submit(conversation, options, self._store, dispatcher=self._dispatcher, account=self._owner)

        await self._patiently(once)
        return id

    def _known(self, talk: Talk, run_id: str) -> str:
        talk.run_ids.append(run_id)
        return run_id

    async def _follow(self, run_id: str, frames: list[Frame]) -> None:
        """Read the events of a run to its end, from one server after another."""
        while not frames or frames[-1].event != 'end':
            headers = {'last-event-id': frames[-1].id or ''} if frames else {}
            url = f'{self._server()}/api/runs/{run_id}/events'
            try:
                async with self._client.stream('GET', url, params=ALL_EVENTS, headers=headers) as response:
                    if response.status_code == 200:
                        await _read(response, frames)
                    elif response.status_code != 503:
                        self.wrong.append(f'{run_id} after {headers}: {response.status_code} {await response.aread()}')
                        return
            except httpx.TransportError:
                self.counts['reconnected'] += 1
                await asyncio.sleep(0.05)

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request that can be repeated until a server answers it."""
        while True:
            with suppress(httpx.TransportError):
                response = await self._client.request(method, self._server() + path, **options)
                if response.status_code != 503:
                    return response.raise_for_status()
            await asyncio.sleep(0.05)

    def _server(self) -> str:
        return self._dice.choice(self._fleet.servers).url

    async def _busy(self) -> set[int]:
        """Return the ids of the processes that execute runs."""
        return {int(run.node.rpartition(':')[2]) for run in await self._store.queue.list() if run.node and run.worker}

    async def _patiently(self, once: Callable[[], Awaitable[T]]) -> T:
        while True:
            with suppress(StoreUnavailableError):
                return await once()
            await asyncio.sleep(0.1)

    async def _check_round(self, talks: Sequence[Talk]) -> None:
        for talk in talks:
            for run_id, frames in talk.frames.items():
                self.counts['events'] += len(frames)
                fresh: list[Frame] = []
                await self._follow(run_id, fresh)
                ours, theirs = _contents(frames), _contents(fresh)
                difference = set(ours) ^ set(theirs)
                self._expect(ours == theirs, f'the client of {run_id} has other events: {difference}')
        journal = self._fleet.journal
        checks = Checks(self._agent, journal, TURNS)
        await checks.check({talk.id: None for talk in talks}, [])
        self.wrong += checks.wrong
        self.counts['versions'] += checks.versions
        done = set(journal.lines())
        lost = [(talk.id, turn) for talk in talks for turn in range(TURNS) if f'{talk.id}/{turn}/t3' not in done]
        self._expect(not lost, f'turns are lost: {lost}')
        queued = await self._store.queue.list()
        self._expect(not queued, f'runs are queued: {queued}')
        begun = journal.begun()
        repeated = {key: count for key, count in begun.items() if count > 1 + self._approved[key]}
        self._expect(not repeated, f'calls began again without an approval: {repeated}')
        for tree in checks.trees.values():
            for path, file in tree.items():
                if file.digest not in self._read:
                    self._read.add(file.digest)
                    self.counts['files'] += 1
                    data = await self._store.read_asset(file.digest)
                    self._expect(digest_of(data) == file.digest, f'{path} has other contents')
        for talk in talks:
            tree = await (await self._agent.list(conversation_id=talk.id, limit=1))[0].file_tree()
            for turn in range(TURNS):
                file = tree.get(f'/{turn}/g.bin')
                wanted = digest_of(large_file(f'{talk.id}/{turn}/g'))
                self._expect(file is not None and file.digest == wanted, f'{talk.id} lacks a file of turn {turn}')
        dead = [node.process for node in self._fleet.nodes if not node.process.is_alive()]
        self._expect(not dead, f'processes have ended: {dead}')
        damages = await self._store.check()
        self._expect(not damages, f'the store is damaged: {damages}')

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)


async def _read(response: httpx.Response, frames: list[Frame]) -> None:
    reader = FrameReader()
    async for chunk in response.aiter_raw():
        for frame in reader.feed(chunk):
            if frame.event == 'reset':
                frames.clear()
            else:
                frames.append(frame)


def _contents(frames: Sequence[Frame]) -> list[tuple[str | None, str]]:
    return [(frame.event, frame.data) for frame in frames]


async def run(options: argparse.Namespace) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        fleet = Fleet(options, stack.enter_context(ExitStack()))
        store = await stack.enter_async_context(open_store(fleet.url, blobs=fleet.blobs))
        dispatcher = await stack.enter_async_context(open_dispatcher(fleet.dispatcher)) if fleet.dispatcher else None
        key = await create_api_key(store, name='chaos', scopes=['run', 'approve'], owner='ada')
        client = await stack.enter_async_context(
            httpx.AsyncClient(headers={'authorization': f'Bearer {key}'}, timeout=httpx.Timeout(15, read=4))
        )
        rounds = Rounds(fleet, store, client, 'ada', dispatcher)
        wrong: list[str] = []
        faults: Counter[str] = Counter()
        started = time.monotonic()
        for number in range(options.first, options.first + options.rounds):
            name = f'{options.seed}/{number}'
            fault = random.Random(name).choice(options.faults)
            begun = time.monotonic()
            await rounds.run(name, fault, options.conversations)
            faults[fault] += 1
            wrong += [f'round {name}, {fault}: {each}' for each in rounds.wrong]
            state = f'{time.monotonic() - begun:.1f} s, {rounds.counts["asked"]} asked so far, {len(wrong)} wrong'
            print(f'round {name}: {fault}, {state}', *rounds.wrong, sep='\n  ', file=sys.stderr, flush=True)
        seconds = round(time.monotonic() - started, 1)
        words = (options.files / 'worker.log').read_text().split()
        rounds.counts.update(
            word for word in words if word in ('event=taken_over', 'event=resumed', 'event=given_back')
        )
        report = {'rounds': options.rounds, 'seed': options.seed, 'seconds': seconds, 'faults': faults}
        return {**report, **rounds.counts, 'wrong': wrong}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description='Disturb servers and workers, check.')
    parser.add_argument('--rounds', type=int, default=10)
    parser.add_argument('--first', type=int, default=0, help='the number of the first round, to repeat one')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--files', type=Path, required=True, help='an empty directory')
    parser.add_argument('--faults', type=lambda text: text.split(','), default=FAULTS, help='also: database, engine')
    parser.add_argument('--release', type=int, choices=(16, 18), default=18, help='that of PostgreSQL')
    parser.add_argument('--temporal', action='store_true', help='let Temporal deliver the runs')
    parser.add_argument('--servers', type=int, default=3)
    parser.add_argument('--workers', type=int, default=4)
    parser.add_argument('--conversations', type=int, default=3, help='the number of conversations of a round')
    options = parser.parse_args(arguments)
    if not options.files.is_dir() or any(options.files.iterdir()):
        parser.error(f'{options.files} is not an empty directory: calls of other runs would count as repeated')
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report = asyncio.run(run(options))
    print(json.dumps(report), flush=True)
    return 1 if report['wrong'] else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
