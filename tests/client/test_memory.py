"""The memory of agents by the client."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

pytest.importorskip('pydantic_ai_harness', reason='the harness pins pydantic-ai to an older release than this one')

from pydantic_deep import create_deep_agent
from pydantic_deep.client import ApiError, Client
from pydantic_deep.server import ServerSettings, create_app
from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel, call
from tests.client.conftest import Server

pytestmark = pytest.mark.anyio

NOTES = ('- Drinks tea.\n', '- Takes milk.\n')


@pytest.fixture
async def remembering() -> AsyncGenerator[Client]:
    """A client of a server whose agent writes a note in each of two turns."""
    model = ScriptedModel(*(each for note in NOTES for each in (call('write_memory', content=note), 'Noted.')))
    async with open_store('memory:') as store:
        app = create_app({'analyst': create_deep_agent(model)}, store, ServerSettings(memory=True))
        async with app.router.lifespan_context(app), Server(app=app, store=store).client() as client:
            yield client


async def test_memory_is_listed_with_its_writers_and_restored(remembering: Client):
    """A revision names the conversation that wrote it. Restoring one is a revision by the owner, which can be undone too."""
    conversations = [await remembering.conversations.create('analyst') for _ in NOTES]
    for conversation in conversations:
        run = await remembering.turns.start(conversation.id, 'Remember it')
        await remembering.turns.wait(run.id)
    [latest] = await remembering.memory.list('analyst')
    history = await remembering.memory.history('analyst', latest.file)

    assert (latest.file, latest.number, latest.content) == ('MEMORY.md', 2, ''.join(NOTES))
    assert [each.conversation_id for each in history] == [each.id for each in reversed(conversations)]
    restored = await remembering.memory.restore('analyst', latest.file)
    assert (restored.number, restored.content, restored.by, restored.conversation_id) == (3, NOTES[0], 'ada', None)
    assert (await remembering.memory.restore('analyst', latest.file, 0)).is_deleted
    assert await remembering.memory.list('analyst') == []
    assert len(await remembering.memory.history('analyst', latest.file)) == 4


async def test_missing_file_and_missing_memory_are_not_found(remembering: Client, ada: Client):
    """A file that was never written has no history. Agents of a server without memory have no files."""
    for client in (remembering, ada):
        assert await client.memory.list('analyst') == []
        with pytest.raises(ApiError) as missing:
            await client.memory.history('analyst', 'MEMORY.md')
        assert missing.value.status == 404
