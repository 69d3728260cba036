"""Garbage collection removes unreachable objects, and nothing if rows are missing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.store import StoreCorruptedError, open_store
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from tests.store.damage import make_sample

pytestmark = pytest.mark.anyio


async def test_garbage_collection_is_refused_if_rows_are_missing(tmp_path: Path) -> None:
    """Targets of a missing row would look like garbage, so a collection raises and removes nothing."""
    await make_sample(tmp_path / 'agents.db')
    for statement in ('DELETE FROM reference', 'DELETE FROM entry WHERE seq = 0', 'DELETE FROM edge'):
        data = (tmp_path / 'agents.db').read_bytes()
        with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
            assert raw.execute(statement).rowcount
            raw.commit()
        async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
            with pytest.raises(StoreCorruptedError, match='rows were written'):
                await store.gc(0)
        (tmp_path / 'agents.db').write_bytes(data)


async def test_subagent_threads_are_deleted_with_the_last_version_that_refers_to_them() -> None:
    task = {'subagent': 'general-purpose', 'description': 'look up'}
    script = ScriptedModel(
        call('task', **task), call('task', **task), 'deepest', 'deep', 'one', 'two', 'by hand', call('task', **task), 'x', 'y'
    )  # fmt: skip
    async with open_store('memory:') as store:
        agent: VersionedAgent[Any, Any] = VersionedAgent(
            create_deep_agent(script), store, make_deps=lambda: DeepAgentDeps(max_depth=2)
        )
        root = await agent.create()
        first = await root.advance('go')
        clone, second = await first.clone(), await first.advance('go')
        [thread] = await clone.subagents()
        [below] = thread.subagents
        for version in (first, clone):
            await agent.delete(version)
            await agent.gc(0)
            assert len(await agent.thread(thread.conversation_id)) == 4
            assert len(await agent.thread(below.conversation_id)) == 2
        mine = await (await agent.load(below.version_id or '')).advance('why?')

        await agent.delete(second)
        await agent.gc(0)
        with pytest.raises(LookupError):
            await agent.thread(thread.conversation_id)
        assert mine.output == 'by hand'
        assert len(await agent.thread(below.conversation_id)) == 4
        assert await agent.events(root.conversation_id) == []

        await agent.delete(mine)
        await agent.gc(0)
        assert [version.id for version in await store.versions()] == [root.id]
