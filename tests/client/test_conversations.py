"""Conversations by the client."""

from __future__ import annotations

import pytest

from pydantic_deep.client import ApiError, Client
from tests.client.conftest import Server

pytestmark = pytest.mark.anyio


async def test_conversation_is_created_renamed_and_deleted(ada: Client):
    """A conversation has the name and the metadata that it was created with, until it is renamed and deleted."""
    created = await ada.conversations.create(
        'analyst', name='May', metadata={'team': 'sales'}, instructions='Be brief.'
    )
    renamed = await ada.conversations.rename(created.id, 'June')
    loaded = await ada.conversations.get(created.id)
    await ada.conversations.delete(created.id)

    assert (created.agent, created.name, created.metadata) == ('analyst', 'May', {'team': 'sales'})
    assert (renamed.name, loaded) == ('June', renamed)
    with pytest.raises(ApiError) as missing:
        await ada.conversations.get(created.id)
    assert missing.value.status == 404


async def test_list_has_all_pages(ada: Client):
    """A list goes on past the end of a page, newest first, and filters by agent and name."""
    for number in range(51):
        await ada.conversations.create('analyst', name=f'number {number}')
    await ada.conversations.create('careful', name='other')

    names = [each.name async for each in ada.conversations.list()]

    assert names == ['other', *(f'number {number}' for number in reversed(range(51)))]
    assert [each.name async for each in ada.conversations.list(agent='careful')] == ['other']
    assert [each.name async for each in ada.conversations.list(search='NUMBER 50')] == ['number 50']


async def test_messages_are_those_of_a_version(ada: Client):
    """Messages are read as messages of pydantic-ai, those of the head or of an earlier version."""
    conversation = await ada.conversations.create('analyst')
    for prompt in ('Hello', 'Again'):
        run = await ada.turns.start(conversation.id, prompt)
        await ada.turns.wait(run.id)
    versions = [version.id async for version in ada.versions.log(conversation.id)]

    head = await ada.conversations.messages(conversation.id)
    earlier = await ada.conversations.messages(conversation.id, version_id=versions[1])

    assert [message.kind for message in head] == ['request', 'response'] * 2
    assert [*earlier] == head[:2]


async def test_owners_do_not_see_each_other(server: Server, ada: Client):
    """A client sees only what the owner of its key owns."""
    conversation = await ada.conversations.create('analyst')
    async with server.client(owner='bob') as bob:
        assert [each async for each in bob.conversations.list()] == []
        with pytest.raises(ApiError) as missing:
            await bob.turns.start(conversation.id, 'Hello')
    assert missing.value.status == 404
