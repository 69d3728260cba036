"""Renderings of a run for other protocols, which do not affect it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import anyio
import pytest
from pydantic_ai import AgentRunResultEvent

from pydantic_deep import create_deep_agent
from pydantic_deep.server import ServerSettings
from pydantic_deep.server._metrics import ServerMetrics
from pydantic_deep.server.runs._pool import RunPool
from pydantic_deep.store import SqlStore
from pydantic_deep.testing import ScriptedModel, Step, call
from pydantic_deep.versions import AgentVersion, TurnOptions, VersionedAgent

pytestmark = pytest.mark.anyio

Version = AgentVersion[Any, Any]


@pytest.fixture
async def pool() -> AsyncGenerator[RunPool]:
    async with RunPool(ServerSettings(), metrics=ServerMetrics()) as pool:
        yield pool


async def root_of(store: SqlStore, *steps: Step, **options: Any) -> Version:
    return await VersionedAgent(create_deep_agent(ScriptedModel(*steps), **options), store).create()


async def names_of(id: str, events: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """Render events as the names of their types."""
    async for event in events:
        yield type(event).__name__.encode()
    yield b'end'


async def test_run_has_additional_renderings(pool: RunPool, store: SqlStore):
    root = await root_of(store, 'Hello there.')

    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada', renderings={'names': names_of})
    chunks = [chunk async for _, chunk in run.renderings['names'].tail()]

    assert chunks[-2:] == [AgentRunResultEvent.__name__.encode(), b'end']
    assert b'PartDeltaEvent' in chunks


async def test_failed_or_hanging_rendering_does_not_affect_the_run(
    pool: RunPool, store: SqlStore, caplog: pytest.LogCaptureFixture
):
    async def failing(id: str, events: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        yield b'first'
        raise RuntimeError('a bug')

    async def hanging(id: str, events: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        yield b'first'
        await anyio.sleep_forever()

    root = await root_of(store, call('ls', path='/'), 'Hello.')
    renderings = {'failing': failing, 'hanging': hanging, 'names': names_of}

    run = pool.start(root, TurnOptions(prompt='hi', moves_head=True), owner='ada', renderings=renderings)
    await run.wait()

    assert (run.state, run.output) == ('complete', 'Hello.')
    assert [chunk async for _, chunk in run.renderings['failing'].tail()] == [b'first']
    assert not run.renderings['hanging'].is_closed
    assert [chunk async for _, chunk in run.renderings['names'].tail()][-1] == b'end'
    assert [record.getMessage() for record in caplog.records] == [f"The rendering 'failing' of the run {run.id} failed"]


async def test_rendering_receives_the_error_of_a_failed_run(
    pool: RunPool, store: SqlStore, caplog: pytest.LogCaptureFixture
):
    async def careful(id: str, events: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        try:
            async for _ in events:
                yield b'event'
        except RuntimeError as error:
            yield str(error).encode()

    root = await root_of(store, RuntimeError('no connection'))

    run = pool.start(
        root, TurnOptions(prompt='hi', moves_head=True), owner='ada', renderings={'careful': careful, 'names': names_of}
    )
    chunks = [chunk async for _, chunk in run.renderings['careful'].tail()]

    assert chunks[-1] == b'no connection'
    assert b'end' not in [chunk async for _, chunk in run.renderings['names'].tail()]
    assert [record.getMessage() for record in caplog.records] == [f'The run {run.id} failed']
