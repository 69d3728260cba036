"""Workers in real processes, which are killed with SIGKILL, on SQLite and on PostgreSQL: no turn is lost, no finished
call is repeated.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from pydantic_deep import Approve, Deny, StateBackend, open_store
from pydantic_deep.dispatch import submit
from pydantic_deep.store import QueuedRunRecord, SqlStore
from pydantic_deep.versions import TurnOptions, VersionedAgent, VersionedConversation
from tests.dispatch.conftest import until
from tests.dispatch.worker_processes import HANGS, Journal, make_agent
from tests.store.conftest import running_postgres

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WORKER_KILLS = int(os.environ.get('WORKER_KILLS', '10'))
"""Number of workers that are killed at random moments."""

Conversation = VersionedConversation[Any, Any]


@pytest.fixture(params=['sqlite', 'postgres'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == 'sqlite':
        yield f'sqlite:///{tmp_path}/store.db'
        return
    with running_postgres('--no-fsync') as ask_postgres:
        yield ask_postgres('database')


class Fleet:
    """The store, and the processes of the workers."""

    def __init__(self, store: SqlStore, directory: Path, program: subprocess.Popen[str]) -> None:
        self.store = store
        self.journal = Journal(directory)
        self.agent: VersionedAgent[Any, Any] = make_agent(store, self.journal)
        self._program = program

    def start(self, command: str = 'worker') -> int:
        """Start a process, and return its id."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f'{command}\n')
        self._program.stdin.flush()
        return int(self._program.stdout.readline())

    def kill(self, process_id: int) -> None:
        os.kill(process_id, signal.SIGKILL)

    async def begin(self, count: int) -> list[Conversation]:
        roots = [await self.agent.create(backend=StateBackend()) for _ in range(count)]
        return [self.agent.conversation(root.conversation_id) for root in roots]

    async def ask(self, conversation: Conversation, prompt: str) -> QueuedRunRecord:
        return await submit(conversation, TurnOptions(prompt=prompt), self.store)

    async def wait_for(self, line: str) -> None:
        await until(lambda: line in self.journal.lines())

    async def finish(self, conversations: Sequence[Conversation]) -> int:
        """Wait until all queued turns have ended; answer pending approvals. Return the number of approvals.

        A call that may have run before a crash is approved if the journal shows that it did not run.
        """
        answered = 0
        with anyio.fail_after(300):
            while await self.is_busy(conversations):
                for conversation in conversations:
                    answered += await self.answer(conversation)
                await anyio.sleep(0.05)
        return answered

    async def is_busy(self, conversations: Sequence[Conversation]) -> bool:
        heads = [await conversation.head() for conversation in conversations]
        is_paused = any(head.state == 'awaiting_approval' for head in heads)
        return is_paused or bool(await self.store.queue.list(limit=1))

    async def answer(self, conversation: Conversation) -> int:
        queued = await self.store.queue.list(conversation_id=conversation.id)
        head = await conversation.head()  # read last: a run that has left the queue has moved it
        if head.state != 'awaiting_approval' or any(run.base_id is not None for run in queued):
            return 0
        lines = self.journal.lines()
        decisions = {
            pending.id: Deny() if f'{pending.tool} {pending.arguments["key"]}' in lines else Approve()
            for pending in head.pending
        }
        await submit(conversation, TurnOptions(answers=decisions), self.store)
        return len(decisions)

    async def outputs(self, conversation: Conversation) -> list[object]:
        """Return the results of the turns of a conversation, in order."""
        versions = await (await conversation.head()).lineage()
        return [version.output for version in versions if version.kind == 'turn']


@pytest.fixture
async def fleet(url: str, tmp_path: Path) -> AsyncGenerator[Fleet]:
    command = [sys.executable, '-m', 'tests.dispatch.worker_processes', url, str(tmp_path)]
    async with open_store(url) as store:
        with subprocess.Popen(  # noqa: ASYNC220 - it only forks workers
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as program:
            yield Fleet(store, tmp_path, program)


async def test_worker_killed_in_a_call_is_replaced_and_the_call_becomes_an_approval(fleet: Fleet) -> None:
    (conversation,) = await fleet.begin(1)
    run = await fleet.ask(conversation, 'paid a')
    killed = fleet.start()
    await fleet.wait_for('pay a')
    fleet.kill(killed)
    fleet.start()

    async def is_paused() -> bool:
        return (await conversation.head()).state == 'awaiting_approval'

    await until(is_paused)
    (pending,) = (await conversation.head()).pending
    ended = await fleet.store.queue.get(run.run_id)
    assert ended is not None
    assert (pending.tool, pending.arguments, ended.epoch) == ('pay', {'key': 'a'}, 2)
    assert await fleet.finish([conversation]) == 1
    assert fleet.journal.lines() == ['note a/1', 'pay a', 'note a/2']
    assert await fleet.outputs(conversation) == ['done a']


async def test_no_turn_is_lost_and_no_finished_call_is_repeated_by_kills_at_random_moments(fleet: Fleet) -> None:
    seed = random.SystemRandom().randint(1, 1_000_000)
    print(f'seed {seed}')
    chance = random.Random(seed)
    conversations = await fleet.begin(4)
    keys = [[f'{at}-{number}' for number in range(max(1, WORKER_KILLS // 4))] for at, _ in enumerate(conversations)]
    for conversation, own in zip(conversations, keys, strict=True):
        for key in own:
            await fleet.ask(conversation, f'mixed {key}')
    workers = [fleet.start(), fleet.start()]
    approvals = kills = 0
    while kills < WORKER_KILLS and await fleet.is_busy(conversations):
        await anyio.sleep(chance.uniform(0, 0.5))
        fleet.kill(workers.pop(0))
        workers.append(fleet.start())
        kills += 1
        for conversation in conversations:
            approvals += await fleet.answer(conversation)
    approvals += await fleet.finish(conversations)
    print(f'{kills} kills, {approvals} approvals')
    for conversation, own in zip(conversations, keys, strict=True):
        assert await fleet.outputs(conversation) == [f'done {key}' for key in own]
    noted = [f'note {key}/{place}' for own in keys for key in own for place in '1c2']
    assert Counter(fleet.journal.lines()) == Counter(noted)
    assert await fleet.store.runs(states=['running']) == []
    assert kills > 0


async def test_three_workers_run_each_of_200_turns_once_and_in_order(fleet: Fleet) -> None:
    conversations = await fleet.begin(20)
    for number in range(10):
        for at, conversation in enumerate(conversations):
            await fleet.ask(conversation, f'short {at}-{number}')
    for _ in range(3):
        fleet.start()
    assert await fleet.finish(conversations) == 0
    for at, conversation in enumerate(conversations):
        assert await fleet.outputs(conversation) == [f'done {at}-{number}' for number in range(10)]
    noted = Counter(fleet.journal.lines())
    assert (len(noted), max(noted.values())) == (200, 1)
    runs = await fleet.store.queue.list(ended=True)
    assert (len(runs), {run.epoch for run in runs}) == (200, {1})
    assert len(await fleet.store.runs()) == 200


async def test_one_orphan_of_200_that_hangs_holds_up_no_other(fleet: Fleet) -> None:
    crashed = fleet.start('orphans 200')
    await until(lambda: len(fleet.journal.lines()) == 200)
    fleet.kill(crashed)
    fleet.journal.open_gate()
    fleet.start()

    async def others_are_complete() -> bool:
        return len(await fleet.store.runs(states=['complete'])) == 199

    await until(others_are_complete)
    (hanging,) = await fleet.store.runs(states=['running'])
    noted = Counter(line for line in fleet.journal.lines() if line.startswith('note '))
    assert (len(noted), max(noted.values()), f'note {HANGS}' in noted) == (199, 1, False)
    assert hanging.attempt_of is not None
