"""Deletion of a turn or a line deletes its steps, unless another version descends from them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import StateBackend, create_deep_agent
from pydantic_deep.store import ApprovalNotFoundError, Store, VersionNotFoundError, open_store
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import AgentVersion, VersionedAgent

pytestmark = pytest.mark.anyio


async def _two_turns(store: Store) -> list[AgentVersion[Any, Any]]:
    calls = [
        ToolCallPart('write_file', {'path': f'/{n}.txt', 'content': str(n)}, tool_call_id=f'w{n}') for n in range(2)
    ]
    agent: VersionedAgent[Any, Any] = VersionedAgent(
        create_deep_agent(ScriptedModel(calls[0], 'one', calls[1], 'two', 'three')), store
    )
    root = await agent.create(backend=StateBackend())
    first = await root.advance('one')
    return [root, first, await first.advance('two')]


async def test_deleting_a_line_deletes_its_steps_and_leaves_no_garbage() -> None:
    async with open_store('memory:') as store:
        root, _, second = await _two_turns(store)
        assert await store.delete_line(second.id) == 3
        assert await store.count() == 0
        report = await store.gc(0)
        assert report.removed['message'] == 8
        assert report.removed['conversation'] == 1
        assert await store.conversation(root.conversation_id) is None


async def test_deleting_a_line_stops_where_another_turn_branched_off() -> None:
    async with open_store('memory:') as store:
        root, first, second = await _two_turns(store)
        other = await first.advance('three')
        assert await store.delete_line(second.id) == 1
        assert [version.id for version in await other.lineage()] == [root.id, first.id, other.id]


async def test_deleting_conversations_deletes_all_versions_and_leaves_no_garbage() -> None:
    """Another conversation with the same messages remains."""
    async with open_store('memory:') as store:
        (root, first, second), (_, _, other) = await _two_turns(store), await _two_turns(store)
        await first.advance('three')
        await second.clone()
        await store.delete_conversations([root.conversation_id, 'unknown'])
        assert {version.conversation_id for version in await store.versions()} == {other.conversation_id}
        deleted = await store.conversation(root.conversation_id)
        assert deleted is not None
        assert deleted.head_id is None
        assert await store.check() == []
        assert (await store.gc(0)).removed['conversation'] == 1
        assert await store.check() == []
        assert len(await other.messages()) == 8


async def test_step_with_children_survives_the_deletion_of_its_turn() -> None:
    async with open_store('memory:') as store:
        _, first, _ = await _two_turns(store)
        (step,) = await first.steps()
        child = await step.with_metadata({'from': 'a step'})
        await store.delete(first.id)
        assert (await store.version(step.id)).kind == 'step'
        assert (await child.lineage())[-2].id == step.id


async def test_steps_above_a_step_with_children_survive() -> None:
    calls = [
        ToolCallPart('write_file', {'path': f'/{n}.txt', 'content': str(n)}, tool_call_id=f'w{n}') for n in range(3)
    ]
    async with open_store('memory:') as store:
        agent: VersionedAgent[Any, Any] = VersionedAgent(create_deep_agent(ScriptedModel(*calls, 'done')), store)
        turn = await (await agent.create()).advance('go')
        first, second, third = await turn.steps()
        await second.with_metadata({'from': 'a step'})
        await agent.delete(turn)
        assert await store.count() == 4
        with pytest.raises(VersionNotFoundError):
            await store.version(third.id)
        assert (await store.version(first.id)).id == first.id


async def test_deleting_a_pause_removes_its_pending_approvals() -> None:
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel(call('ls'), 'done'), interrupt_on={'ls': True}), store)
        paused = await (await agent.create()).advance('go')
        (waiting,) = await store.approvals()
        await store.delete(paused.id)
        assert await store.approvals() == []
        with pytest.raises(ApprovalNotFoundError):
            await store.approval(waiting.id)
