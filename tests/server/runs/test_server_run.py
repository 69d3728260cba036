"""Runs of this process, with or without readers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings
from pydantic_deep.server._metrics import ServerMetrics
from pydantic_deep.server.runs._pool import RunPool
from pydantic_deep.server.runs._server_run import ServerRun
from pydantic_deep.store import SqlStore
from pydantic_deep.streaming import StreamEvent, decode_entry
from pydantic_deep.testing import ScriptedModel, Step, call
from pydantic_deep.versions import AgentVersion, TurnOptions, VersionedAgent
from tests.server.conftest import Gate

pytestmark = pytest.mark.anyio

Version = AgentVersion[Any, Any]


@pytest.fixture
async def pool() -> AsyncGenerator[RunPool]:
    async with RunPool(ServerSettings(), metrics=ServerMetrics()) as pool:
        yield pool


async def root_of(store: SqlStore, *steps: Step, **options: Any) -> Version:
    return await VersionedAgent(create_deep_agent(ScriptedModel(*steps), **options), store).create()


async def events_of(run: ServerRun) -> list[StreamEvent]:
    return [decode_entry(entry) async for _, entry in run.log.tail()]


def types(events: list[StreamEvent]) -> list[str]:
    return [event.type for event in events]


async def test_run_completes_without_readers(pool: RunPool, store: SqlStore):
    """004-12: SSE streaming with tool calls, auditing, multi-model schemes, as one experience."""
    root = await root_of(store, 'Hello.')

    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada')

    assert (run.state, pool.get(run.id), pool.running_count) == ('running', run, 1)
    await run.wait()
    assert (run.state, run.output, pool.running_count, pool.get(run.id)) == ('complete', 'Hello.', 0, run)
    stored = await store.run(run.id)
    assert stored is not None
    assert (stored.state, stored.base_id) == ('complete', root.id)
    assert types(await events_of(run)) == ['start', 'text', 'usage', 'end']
    assert run.log.is_closed
    conversation = await store.conversation(root.conversation_id)
    assert conversation is not None
    assert conversation.head_id == run.version_id


async def test_wait_begun_returns_when_the_run_is_stored(pool: RunPool, store: SqlStore, gate: Gate):
    root = await root_of(store, call('hold'), 'Done.', tools=[gate.hold])
    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada')

    await run.begun.wait()

    assert [each.id for each in await store.runs(states=['running'])] == [run.id]
    gate.opened.set()
    await run.wait()


async def test_invalid_turn_is_reported_in_the_log(pool: RunPool, store: SqlStore):
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Hello.')), store)
    root = await agent.create(model='nobody:knows')

    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada')
    await run.wait()
    await run.begun.wait()

    assert (run.state, run.version_id) == ('failed', None)
    assert types(await events_of(run)) == ['start', 'error', 'end']
    assert run.error is not None
    assert 'nobody' in run.error.message
