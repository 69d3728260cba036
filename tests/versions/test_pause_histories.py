"""What is stored of a pause grows with what waits, not with the histories of the subagents that wait."""

from __future__ import annotations

import json

import pytest
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import Approve, create_deep_agent
from pydantic_deep.store import Store, VersionNotFoundError, open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import AgentVersion, VersionedAgent

pytestmark = pytest.mark.anyio

LONG = 'a finding. ' * 5_000


def _steps() -> list[ToolCallPart | str]:
    return [
        ToolCallPart('task', {'subagent': 'general-purpose', 'description': 'look'}, tool_call_id='t1'),
        ToolCallPart('write_file', {'path': '/one.md', 'content': LONG}, tool_call_id='w1'),
        ToolCallPart('write_file', {'path': '/two.md', 'content': 'two'}, tool_call_id='w2'),
        'child is done',
        'done',
    ]


async def _paused(store: Store) -> AgentVersion[object, object]:
    agent = create_deep_agent(ScriptedModel(*_steps()), interrupt_on={'write_file': True})
    root = await VersionedAgent(agent, store).create()
    return await root.advance('go')  # pyright: ignore[reportReturnType] - only its values matter here


async def test_a_pause_names_the_version_of_the_subagent_and_holds_no_copy_of_its_history() -> None:
    async with open_store('memory:') as store:
        first = await _paused(store)
        second = await first.resume({first.pending[0].id: Approve()})
        for version in (first, second):
            stored = (await store.asset(version.record.pending or '')).data
            (metadata,) = json.loads(stored)['metadata'].values()
            (thread,) = await version.subagents() or await first.subagents()
            held = metadata['pydantic_deep']['messages']['version']
            assert (await store.version(held)).conversation_id == thread.conversation_id
        assert len(stored) < 5_000  # the history of the subagent has 55,000 characters by now


async def test_a_subagent_goes_on_from_its_version_to_the_end() -> None:
    async with open_store('memory:') as store:
        first = await _paused(store)
        second = await first.resume({first.pending[0].id: Approve()})
        last = await second.resume({second.pending[0].id: Approve()})
        assert (last.output, last.state) == ('done', 'complete')
        assert sorted(await last.file_tree()) == ['/one.md', '/two.md']


async def test_a_pause_whose_subagent_was_deleted_says_so() -> None:
    async with open_store('memory:') as store:
        first = await _paused(store)
        (thread,) = await first.subagents()
        await store.delete(thread.version_id or '')
        with pytest.raises(VersionNotFoundError):
            await first.resume({first.pending[0].id: Approve()})
