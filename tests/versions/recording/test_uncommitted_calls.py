"""Calls between two commits: each result is stored once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import RunContext, Tool, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import DeepAgentDeps, StateBackend, create_deep_agent
from pydantic_deep.store import Commit, Committed
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from tests.versions.conftest import CountingEngine, MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize('tool', ['write_file', 'ls'])
async def test_result_of_a_call_is_stored_once(make: MakeAgent, store: SpyStore, tool: str):
    asked = call('ls') if tool == 'ls' else call('write_file', path='/a', content='x')
    root = await make(asked, 'done').create(backend=StateBackend())

    turn = await root.advance('a')

    (kept,) = await store.calls([turn.record.run_id or ''])
    assert (kept.status, kept.result) == ('done', None)
    assert not [sql for sql in store.counting.writes if sql.startswith('UPDATE tool_call')]


async def test_each_read_only_step_adds_one_commit(make: MakeAgent, store: SpyStore):
    root = await make(call('ls'), call('ls'), 'done').create()
    store.commits.clear()

    await root.advance('a')

    assert len(store.commits) == 2 + 2


def told(commit: Commit) -> list[str]:
    """Name the records of a commit."""
    words = [f'{each.kind} {each.state}' for each in commit.versions]
    return words + [f'{each.status} {each.tool_name}' for each in commit.calls]


def send() -> str:
    """Send."""
    return 'sent'


async def test_call_that_ends_while_its_files_are_stored_is_recorded_afterwards():
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def draft(ctx: RunContext[DeepAgentDeps]) -> str:
        """Draft."""
        await ctx.deps.backend.write_bytes('/draft.txt', b'half')
        begun.set()
        await may_end.wait()
        return 'drafted'

    @dataclass
    class Ends(AbstractCapability[Any]):
        async def after_tool_execute(
            self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, result: Any
        ) -> Any:
            if call.tool_name == 'send':
                await begun.wait()
            return result

    class Slow(SpyStore):
        async def commit(self, commit: Commit) -> Committed:
            if 'done send' in told(commit):
                may_end.set()
                for _ in range(100):  # until the other call has ended
                    await asyncio.sleep(0)
                ended.set()
            return await super().commit(commit)

    tools = [Tool(draft, metadata={'effect': 'write'}), send]
    async with Slow(CountingEngine(MemoryEngine.open())) as slow:
        model = ScriptedModel([call('draft'), call('send')], 'done')
        agent = VersionedAgent(create_deep_agent(model, tools=tools, capabilities=[Ends()]), slow)
        root = await agent.create(backend=StateBackend())
        await root.advance('go')
        assert ended.is_set()
        assert [told(commit) for commit in slow.commits][2:] == [
            ['step interrupted'],
            ['started send'],
            ['started draft', 'done send'],
            ['turn complete', 'done draft'],
        ]
