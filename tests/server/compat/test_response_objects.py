"""Conversations of OpenAI's clients at several servers of one store: no change is lost, and a refused one leaves nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import httpx
import pytest

from pydantic_deep.server import create_api_key
from pydantic_deep.server.compat._response_objects import change_fields, load_conversation
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.store import new_id, open_store
from tests.server.conftest import Client, Serve, Served
from tests.server.test_restart import server_on

pytestmark = pytest.mark.anyio

Two: TypeAlias = tuple[Served, Served]

CHANGES = 12
"""Number of items that each of two servers adds."""


@pytest.fixture
async def two(serve: Serve) -> AsyncGenerator[Two]:
    """Two servers of one store, in one process."""
    name = new_id()
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(f'memory:{name}')) for _ in range(2)]
        first, second = [await stack.enter_async_context(serve(store=store)) for store in stores]
        yield first, second


async def post(client: Client, path: str, **body: Any) -> Any:
    """Return the answer to a request."""
    answer = await client.post(f'/v1/conversations{path}', json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def message(text: str) -> dict[str, str]:
    return {'role': 'user', 'content': text}


async def change_at_both(clients: Sequence[httpx.AsyncClient]) -> None:
    """Change a conversation at two servers at the same time, and check that both have all changes."""
    made = await post(clients[0], '', items=[message('first')])
    path = f'/{made["id"]}'
    [first] = (await clients[1].get(f'/v1/conversations{path}/items')).json()['data']

    async with anyio.create_task_group() as group:
        for number in range(2 * CHANGES):
            client = clients[number % 2]
            group.start_soon(partial(post, client, f'{path}/items', items=[message(str(number))]))
        group.start_soon(partial(post, clients[0], path, metadata={'topic': 'numbers'}))
        group.start_soon(clients[1].delete, f'/v1/conversations{path}/items/{first["id"]}')

    for client in clients:
        items = (await client.get(f'/v1/conversations{path}/items', params={'limit': 100})).json()['data']
        assert sorted(int(item['content'][0]['text']) for item in items) == list(range(2 * CHANGES))
        assert (await client.get(f'/v1/conversations{path}')).json()['metadata'] == {'topic': 'numbers'}


async def test_simultaneous_changes_at_two_servers_of_one_store_are_all_stored(two: Two) -> None:
    """Items that are added and removed, and metadata, at two applications in one process."""
    key = await two[0].key('run')
    async with two[0].client(key) as first, two[1].client(key) as second:
        await change_at_both([first, second])


@pytest.mark.slow
async def test_simultaneous_changes_at_two_processes_of_one_store_are_all_stored(tmp_path: Path) -> None:
    """The same with two server processes on one SQLite file."""
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        key = await create_api_key(store, name='test', scopes=['run'], owner='ada')
    async with server_on(tmp_path, key) as (_, first), server_on(tmp_path, key) as (_, second):
        await change_at_both([first, second])


async def test_change_of_a_conversation_that_another_server_deletes_meanwhile_leaves_nothing(two: Two) -> None:
    """The change is refused as unknown, and the conversation stays deleted, without its items."""
    key = await two[0].key('run')
    access = await two[0].access(key)
    async with two[0].client(key) as first, two[1].client(key) as second:
        made = await post(first, '', items=[message('first')])
        own = await load_conversation(access, made['id'])
        assert (await second.delete(f'/v1/conversations/{made["id"]}')).status_code == 200
        with pytest.raises(ServerError) as refused:
            await change_fields(access.state, own.row, lambda fields: {'metadata': {'late': 'yes'}})
        assert refused.value.type == 'not_found'
        for client in (first, second):
            assert (await client.get(f'/v1/conversations/{made["id"]}')).status_code == 404
    row = await two[0].state.openai_objects.get(made['id'])
    assert (row.fields, row.is_deleted) == ({}, True)
