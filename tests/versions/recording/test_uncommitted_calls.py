"""Calls between two commits: each result is stored once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import RunContext, Tool, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart, ToolReturnPart

from pydantic_deep import DeepAgentDeps, LocalBackend, StateBackend, Subagent, create_deep_agent
from pydantic_deep.store import ApprovalRecord, Commit, Committed
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import ScriptedModel, Step, call
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


class WriteCounts(SpyStore):
    """Counts the writes other than commits."""

    claims = 0

    async def claim_workspace(self, backend: str, run_id: str, version_id: str | None) -> bool:
        self.claims += 1
        return await super().claim_workspace(backend, run_id, version_id)

    async def claim_run(self, run_id: str) -> bool:
        raise AssertionError('no run of a turn is claimed')

    async def claim_approvals(self, version_id: str, run_id: str) -> list[ApprovalRecord]:
        raise AssertionError('no approval is pending')


def put(number: int) -> ToolCallPart:
    return call('write_file', path=f'/{number}', content='x')


def plan_of(content: str) -> ToolCallPart:
    return call('write_todos', todos=[{'content': content, 'status': 'pending'}])


def edit(old: str, new: str) -> ToolCallPart:
    return call('edit_file', path='/a.txt', old_string=old, new_string=new)


TURNS: dict[str, tuple[list[Step], int]] = {
    'no step': ([], 2),
    'reads': ([call('ls'), [call('read_file', path='/a.txt'), call('glob', pattern='*')]], 4),
    'writes': ([put(1), put(2)], 4),
    'edits': ([edit('one', 'two'), edit('two', 'three')], 4),
    'failing edits': ([edit('none', 'two'), edit('none', 'three')], 4),
    'several writes in a response': ([[put(1), put(2), call('ls')], [put(3), put(4)]], 4),
    'todos': ([plan_of('a'), plan_of('b')], 4),
    'todos and writes in a response': ([[plan_of('a'), put(1)], [put(2), plan_of('b')]], 4),
    'external calls': ([call('send'), call('send')], 6),  # each end is stored at once
    'external calls in parallel': ([[call('send'), call('send')]] * 2, 8),  # they start in one commit
    'an external call after a write': (
        [[put(1), call('send')], [put(2), call('send')]],
        8,
    ),  # a start after the first call
    'subagents': ([call('task', subagent='child', description='do')] * 2, 2 + 2 * 5),
}
"""The steps of a turn, and the number of its commits: its run, one for each step, its end, and those of some calls."""


@pytest.mark.parametrize('where', ['memory', 'directory'])
@pytest.mark.parametrize('kind', TURNS)
async def test_number_of_commits_of_a_turn(tmp_path: Path, kind: str, where: str) -> None:
    """The call of a subagent adds five: the step, the run of the child, the child's step and end, and its own end."""
    steps, count = TURNS[kind]
    backend = StateBackend({'/a.txt': 'one'})
    if where == 'directory':
        (tmp_path / 'a.txt').write_text('one')
        backend = LocalBackend(tmp_path)
    child = Subagent('child', 'Helps.', model=ScriptedModel(call('ls'), 'did', call('ls'), 'did'))
    async with WriteCounts(CountingEngine(MemoryEngine.open())) as store:
        deep = create_deep_agent(ScriptedModel(*steps, 'done'), tools=[send], subagents=[child])
        root = await VersionedAgent(deep, store).create(backend=backend)
        store.commits.clear()
        store.claims = 0
        turn = await root.advance('go')
        returned = [part for m in await turn.messages() for part in m.parts if isinstance(part, ToolReturnPart)]
        assert {part.outcome == 'success' for part in returned} == ({kind != 'failing edits'} if steps else set())
        assert [len(store.commits), store.claims] == [count, 1], [told(commit) for commit in store.commits]


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
            ['step interrupted', 'started send'],
            ['started draft', 'done send'],
            ['turn complete', 'done draft'],
        ]
