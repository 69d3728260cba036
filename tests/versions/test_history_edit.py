"""A history written by hand: `set` makes a version of it, and only if it is another one."""

from __future__ import annotations

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from pydantic_deep import create_deep_agent
from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import VersionedAgent

pytestmark = pytest.mark.anyio


async def test_set_appends_what_is_new_and_moves_the_head() -> None:
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
async def test_set_with_another_beginning_goes_on_a_branch_and_the_old_history_stays(kept: int, branch: str) -> None:
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


def _exchange(said: str, answered: str) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(said)]), ModelResponse(parts=[TextPart(answered)])]
