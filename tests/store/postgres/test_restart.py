"""Turns in flight survive restarts of the server, on both releases and in both modes of `pg_ctl restart`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator
from typing import Any

import anyio
import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.dispatch import Worker, WorkerEvent
from pydantic_deep.store import SqlStore, open_store
from pydantic_deep.store.postgres._driver import create_pool
from pydantic_deep.store.postgres._lost_commits import is_applied, transaction_id
from pydantic_deep.store.postgres._transactions import BEGIN_WRITE
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import AgentVersion, VersionedAgent
from tests.store.conftest import Ask, running_postgres

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TURNS = 6
STEPS = 6


@pytest.fixture(params=['16', '18'])
def ask(request: pytest.FixtureRequest) -> Generator[Ask]:
    """A server that syncs to disk."""
    with running_postgres('--release', request.param) as ask:
        yield ask


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Call a tool with effects in each step, and then answer."""
    index = sum(isinstance(message, ModelResponse) for message in messages)
    return call('send', key=str(index)) if index < STEPS else 'Done'


class Sender:
    """An agent whose tool has effects outside. In the middle of all turns, it sets an event."""

    def __init__(self, store: SqlStore) -> None:
        self.keys: list[str] = []
        self.is_in_the_middle = asyncio.Event()
        agent = create_deep_agent(ScriptedModel(then=answer), tools=[self.send], name='analyst')
        self.agent: VersionedAgent[Any, Any] = VersionedAgent(agent, store)

    async def send(self, key: str) -> str:
        """Send something."""
        self.keys.append(key)
        if len(self.keys) == TURNS * STEPS // 2:
            self.is_in_the_middle.set()
        return f'sent {key}'

    async def turn(self) -> AgentVersion[Any, Any]:
        return await (await self.agent.create()).advance('Go')


@pytest.mark.parametrize('stop', ['stop', 'shutdown'])
async def test_turns_survive_a_restart(ask: Ask, stop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turns end with all their steps, none twice, and no other process takes them over."""
    monkeypatch.setattr('pydantic_deep.dispatch._worker.CONFIRM_SECONDS', 0)  # the worker would take over at once
    monkeypatch.setattr('pydantic_deep.dispatch._worker.ORPHAN_SECONDS', 0.01)
    url = ask('database')
    taken: list[WorkerEvent] = []
    turns: list[AgentVersion[Any, Any]] = []

    async with open_store(url) as store, open_store(url) as other:
        sender, others = Sender(store), Sender(other)

        async def restart() -> None:
            await sender.is_in_the_middle.wait()
            await asyncio.to_thread(ask, stop)
            await asyncio.to_thread(ask, 'start')

        worker = Worker({'analyst': others.agent}, other, on_event=taken.append)
        async with anyio.create_task_group() as group:
            await group.start(worker.run)
            restarting = asyncio.create_task(restart())
            turns += await asyncio.gather(*(sender.turn() for _ in range(TURNS)))
            await restarting
            worker.stop()

        assert (taken, others.keys) == ([], [])
        assert len(turns) == TURNS
        assert Counter(sender.keys) == dict.fromkeys(map(str, range(STEPS)), TURNS)
        for turn in turns:
            assert (turn.output, len(await turn.steps())) == ('Done', STEPS)
        assert await store.check() == []
        assert await other.orphans() == []
        assert await other.engine.living_owners([store.owner]) == {store.owner}


async def test_id_that_a_crashed_server_assigns_again_is_not_that_of_the_lost_commit(ask: Ask) -> None:
    pool = await create_pool(ask('database'))
    connection = await pool.acquire()
    await connection.execute(BEGIN_WRITE)
    lost = transaction_id(connection)
    assert lost is not None
    await asyncio.to_thread(ask, 'stop')
    await asyncio.to_thread(ask, 'start')
    await pool.release(connection)

    connection = await pool.acquire()
    number = 0
    while number < lost.number:
        number = int(str((await connection.fetch('SELECT pg_current_xact_id()::text'))[0][0]))
    status = await connection.fetch('SELECT pg_xact_status($1::text::xid8)', str(lost.number))
    assert (number, status[0][0]) == (lost.number, 'committed'), 'it was assigned again'
    assert await is_applied(connection, lost) is False
    await pool.release(connection)
    await pool.close()
