"""History edits without a run: `with_messages` and `set` create a version only if the history differs."""

from __future__ import annotations

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from pydantic_deep import create_deep_agent
from pydantic_deep.store import VersionConflictError, open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import VersionedAgent

pytestmark = pytest.mark.anyio


async def test_set_appends_new_messages_and_moves_the_head() -> None:
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel('one', 'two')), store)
        first = await (await agent.create()).advance('hello')
        conversation = agent.conversation(first.conversation_id)
        await conversation.move_to(first)
        primed = [*await first.messages(), *_exchange('Which one?', 'The red one.')]
        version = await conversation.set(primed)
        assert (version.kind, version.parent_id, version.branch) == ('edit', first.id, 'main')
        assert (await conversation.head()) == version
        assert await conversation.messages() == primed
        after = await conversation.advance('go on')
        assert len(await after.messages()) == len(primed) + 2


async def test_set_with_the_same_history_writes_nothing() -> None:
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel('one')), store)
        first = await (await agent.create()).advance('hello')
        conversation = agent.conversation(first.conversation_id)
        await conversation.move_to(first)
        before = await agent.count(steps=True)
        assert await conversation.set(await first.messages()) == first
        assert await agent.count(steps=True) == before


@pytest.mark.parametrize(('kept', 'branch'), [(0, 'main.2'), (1, 'branch-2')])
async def test_set_with_a_different_beginning_branches_and_preserves_the_old_history(kept: int, branch: str) -> None:
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel('one')), store)
        first = await (await agent.create()).advance('hello')
        old = await first.messages()
        conversation = agent.conversation(first.conversation_id)
        await conversation.move_to(first)
        version = await conversation.set([*old[:kept], *_exchange('Other', 'Way')][: kept + 2])
        assert version.branch == branch
        assert len(await version.messages()) == kept + 2
        assert await (await agent.load(first.id)).messages() == old


async def test_with_messages_moves_the_head_only_on_request() -> None:
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel('one')), store)
        first = await agent.create()
        conversation = agent.conversation(first.conversation_id)
        child = await first.with_messages(_exchange('Which one?', 'The red one.'))
        assert (child.parent_id, await conversation.head()) == (first.id, first)
        moved = await first.with_messages(_exchange('Which one?', 'The blue one.'), moves_head=True)
        assert (moved.parent_id, await conversation.head()) == (first.id, moved)
        with pytest.raises(VersionConflictError) as conflict:
            await first.with_messages(_exchange('Which one?', 'None.'), moves_head=True)
        assert len(await (await agent.load(conflict.value.yours)).messages()) == 2
        assert await conversation.head() == moved


async def test_changing_messages_afterwards_does_not_change_the_version() -> None:
    model = ScriptedModel('one')
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(model), store)
        question, answer = ModelRequest.user_text_prompt('Which one?'), ModelResponse([TextPart('The red one.')])
        child = await (await agent.create()).with_messages([question, answer])
        answer.parts = [TextPart('The blue one.')]
        after = await child.advance('Why?')
        assert 'The red one.' in repr(await after.messages())
        assert 'The red one.' in repr(model.requests[-1])


def _exchange(said: str, answered: str) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(said)]), ModelResponse(parts=[TextPart(answered)])]
