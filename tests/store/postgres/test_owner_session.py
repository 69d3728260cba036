"""Owners of open stores, which are alive until their process ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import cast

import anyio
import pytest

from pydantic_deep.store import open_store
from pydantic_deep.store.postgres import PostgresEngine
from pydantic_deep.store.postgres._driver import Connection
from pydantic_deep.store.postgres._owner_session import OwnerSession

pytestmark = pytest.mark.anyio

OTHER_PROCESS = """
import sys, anyio
from pydantic_deep.store import open_store
async def main():
    async with open_store(sys.argv[1]) as store:
        print(store.owner, flush=True)
        sys.stdin.read()
anyio.run(main)
"""


@pytest.fixture
async def engine(postgres_url: str) -> AsyncGenerator[PostgresEngine]:
    opened = await PostgresEngine.open(postgres_url)
    yield opened
    await opened.aclose()


async def until_dead(engine: PostgresEngine, owner: str) -> None:
    """Wait until the server has noticed that a connection ended."""
    with anyio.fail_after(60):
        while await engine.living_owners([owner]):  # noqa: ASYNC110 - the server sends no notification
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_owner_is_alive_until_its_process_is_killed(engine: PostgresEngine) -> None:
    async with await anyio.open_process([sys.executable, '-c', OTHER_PROCESS, engine.url]) as process:
        assert process.stdout is not None
        owner = (await process.stdout.receive()).decode().strip()
        assert await engine.living_owners([owner, 'nobody', engine.owner]) == {owner, engine.owner}
        process.kill()
    await until_dead(engine, owner)
    assert await engine.living_owners([owner, engine.owner]) == {engine.owner}


async def test_owner_is_dead_after_its_store_is_closed(engine: PostgresEngine) -> None:
    async with open_store(engine.url) as store:
        assert await engine.living_owners([store.owner]) == {store.owner}
    assert await engine.living_owners([store.owner]) == set()


async def test_owner_is_dead_although_its_connections_do_not_close_in_time(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await PostgresEngine.open(engine.url)
    assert await other.living_owners([other.owner]) == {other.owner}
    monkeypatch.setattr('pydantic_deep.store.postgres._engine.CLOSE_SECONDS', 0)
    await other.aclose()
    await until_dead(engine, other.owner)


class FakeConnection:
    """A connection on which no lock can be taken."""

    def __init__(self) -> None:
        self.is_terminated = False

    async def fetch(self, query: str, *args: object) -> None:
        raise ConnectionError('lost')

    def terminate(self) -> None:
        self.is_terminated = True


async def test_connection_that_cannot_take_the_lock_is_ended() -> None:
    opened: list[FakeConnection] = []

    async def open_one() -> Connection:
        opened.append(FakeConnection())
        return cast('Connection', opened[-1])

    session = OwnerSession(open_one, lambda: None)
    for _ in range(2):
        with pytest.raises(ConnectionError, match='lost'):
            await session.hold()
    assert [connection.is_terminated for connection in opened] == [True, True]
    await session.aclose()
