"""Threads of user interfaces: each is one conversation of its owner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pydantic_deep.repository import Repository, RowNotFoundError
from pydantic_deep.server._threads import Thread
from pydantic_deep.server.ui._threads import open_thread
from tests.server.conftest import Client, MakeClient, Served
from tests.server.ui.conftest import asked, run, text_of

pytestmark = pytest.mark.anyio


async def test_thread_is_one_conversation(ada: Client, served: Served):
    await run(ada, asked('One'))
    again = await run(ada, asked('Two'))
    other = await run(ada, asked('Three', thread='u'))

    assert text_of(again) == 'You said: Two, after 2 messages.'
    assert text_of(other) == 'You said: Three, after 0 messages.'
    assert len(await served.store.conversations()) == 2


async def test_thread_id_of_another_owner_is_another_conversation(ada: Client, make_client: MakeClient):
    await run(ada, asked('Mine'))
    events = await run(await make_client('run', owner='bob'), asked('Yours'))

    assert text_of(events) == 'You said: Yours, after 0 messages.'


@pytest.mark.slow
async def test_thread_of_a_deleted_conversation_starts_again(ada: Client, served: Served):
    await run(ada, asked('Hi'))
    [conversation] = await served.store.conversations()
    assert (await ada.delete(f'/api/conversations/{conversation.id}')).status_code == 204

    assert text_of(await run(ada, asked('Hi'))) == 'You said: Hi, after 0 messages.'


class StaleThreads:
    """Threads as seen by a request that looked for one before it was created."""

    def __init__(self, threads: Repository[Thread]) -> None:
        self._threads = threads
        self._has_looked = False

    async def get(self, key: str) -> Thread:
        if not self._has_looked:
            self._has_looked = True
            raise RowNotFoundError('server_thread', key)
        return await self._threads.get(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threads, name)


async def test_concurrent_requests_for_a_new_thread_create_one_conversation(ada: Client, served: Served):
    access = await served.access(await served.key('run'))
    first = await open_thread(access, 'writer', 't')
    stale: Any = StaleThreads(served.state.threads)
    second = await open_thread(replace(access, state=replace(served.state, threads=stale)), 'writer', 't')

    conversations = (await ada.get('/api/conversations')).json()['items']
    assert first.id == second.id
    assert [each['id'] for each in conversations] == [first.conversation_id]


class OldThreads:
    """Threads as seen by a request that read one before another request replaced it."""

    def __init__(self, threads: Repository[Thread], old: Thread) -> None:
        self._threads = threads
        self._old: Thread | None = old

    async def get(self, key: str) -> Thread:
        old, self._old = self._old, None
        return old or await self._threads.get(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threads, name)


async def test_concurrent_requests_for_a_deleted_thread_create_one_conversation(ada: Client, served: Served):
    """The request that finds the old thread late does not remove the new one."""
    access = await served.access(await served.key('run'))
    first = await open_thread(access, 'writer', 't')
    [old] = (await served.state.threads.list()).items
    await served.store.delete(first.id)
    second = await open_thread(access, 'writer', 't')
    late: Any = OldThreads(served.state.threads, old)
    third = await open_thread(replace(access, state=replace(served.state, threads=late)), 'writer', 't')

    assert third.id == second.id
    assert (await open_thread(access, 'writer', 't')).id == second.id
