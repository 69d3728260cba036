"""The state of deps in versions: todos, uploads, large results and files of forks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep import DeepAgentDeps, LocalBackend, StateBackend, Subagent, Todo
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import AgentVersion, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore
from tests.versions.recovery.crashes import When, World, ends, keeps_child, nth, parts_of_returns, plan, tool_call

pytestmark = pytest.mark.anyio


def put(path: str, content: str) -> Answer:
    return call('write_file', path=path, content=content)


async def read(version: AgentVersion[DeepAgentDeps, str], path: str) -> str:
    return (await (await version.files()).read_bytes(path)).decode()


async def test_uploads_and_todos_are_part_of_versions(make: MakeAgent, store: SpyStore):
    deps = DeepAgentDeps(backend=StateBackend())
    await deps.upload('sales.csv', b'a,b\n1,2\n')
    agent = make(call('write_todos', todos=[{'content': 'chart', 'status': 'pending'}]), 'done', 'again')
    root = await agent.create(deps=deps)

    turn = await root.advance('go')
    later = make('later')
    again = await (await later.load(turn.id)).advance('what now?')

    assert root.todos == []
    assert [todo.content for todo in turn.todos] == ['chart']
    assert [todo.content for todo in again.todos] == ['chart']
    model: Any = later.agent.model
    assert 'sales.csv' in str(model.requests[0].messages)
    assert await read(again, '/uploads/sales.csv') == 'a,b\n1,2\n'
    difference = await root.diff(turn)
    assert ([t.content for t in difference.todos_before], [t.content for t in difference.todos_after]) == ([], ['chart'])  # fmt: skip
    assert bool(difference)
    assert 'todos changed' in str(difference)


async def test_failed_fork_does_not_change_the_files_of_its_parent(make: MakeAgent):
    agent = make(
        call('task', subagent='writer', description='write'), put('/mine.txt', 'x'), 'written', 'done',
        subagents=[Subagent('writer', 'Writes.', isolation='fork')],
    )  # fmt: skip
    turn = await (await agent.create(backend=StateBackend({'/a.txt': 'a'}))).advance('go')

    assert await read(turn, '/mine.txt') == 'x'
    assert await read(turn, '/a.txt') == 'a'
    failing = make(
        call('task', subagent='writer', description='write'), put('/lost.txt', 'x'), RuntimeError('no'), 'done',
        subagents=[Subagent('writer', 'Writes.', isolation='fork')],
    )  # fmt: skip
    other = await (await failing.load(turn.id)).advance('once more')
    assert '/lost.txt' not in await other.file_tree()


async def test_offloaded_results_are_part_of_versions(make: MakeAgent):
    def talk() -> str:
        return 'word ' * 40_000

    turn = await (await make(call('talk'), 'done', tools=[talk]).create()).advance('go')
    path = '/offload/call-1'
    agent = make(call('read_file', path=path), 'seen', tools=[talk])

    later = await (await agent.load(turn.id)).advance('what was it?')

    returned = [part for m in await later.messages() for part in m.parts if isinstance(part, ToolReturnPart)]
    assert returned[-1].tool_name == 'read_file'
    assert returned[-1].outcome == 'success'
    assert 'word word' in returned[-1].model_response_str()
    assert (await later.replay()).difference is None


async def test_foreign_deps_do_not_replace_the_deps_of_the_version(store: SpyStore):
    agent = VersionedAgent(Agent[Any, str](ScriptedModel('one')), store)
    deps = DeepAgentDeps(todos=[Todo(content='a', status='pending')])
    root = await agent.create(deps=deps)

    turn = await root.advance('go', deps=7)

    assert [todo.content for todo in turn.todos] == ['a']


@pytest.mark.parametrize('where', ['memory', 'directory'])
@pytest.mark.parametrize('is_kept', [True, False])
async def test_todos_are_restored_with_their_call_or_written_again(
    url: str, tmp_path: Path, where: str, is_kept: bool
) -> None:
    todos = [{'content': 'walk', 'status': 'pending'}]
    world = World(url, plan({'go': [tool_call('write_todos', todos=todos), tool_call('look', key='a'), 'end']}))
    dies: dict[str, When] = {'dies_after' if is_kept else 'dies_before': ends('write_todos')}
    async with world.process(**dies) as agent:
        backend = StateBackend() if where == 'memory' else LocalBackend(tmp_path)
        await (await agent.create(backend=backend)).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert [todo.content for todo in version.todos] == ['walk']


async def test_deps_that_a_call_changes_beside_files_are_stored_at_its_end(url: str) -> None:
    world = World(url, plan({'go': [tool_call('plan_in_file'), 'end']}))

    @world.tools.tool(metadata={'effect': 'write'})
    async def plan_in_file(ctx: RunContext[DeepAgentDeps]) -> str:
        """Plan."""
        world.ran.append('plan')
        ctx.deps.todos.append(Todo(content='walk', status='pending'))
        await ctx.deps.backend.write_bytes('/plan.txt', b'walk')
        return 'planned'

    async with world.process(dies_after=ends('plan_in_file')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert [todo.content for todo in version.todos] == ['walk']
        assert sorted(await version.file_tree()) == ['/plan.txt']
    assert world.ran == ['plan']


async def test_long_result_can_be_read_after_a_crash(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('long', id='long'), tool_call('read_file', path='/offload/long', offset=0, limit=1), 'end']
    }
    world = World(url, plan(answers))
    async with world.process(dies_after=ends('long')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        for _ in range(2):
            await agent.gc(grace_seconds=0)
        (version,) = await agent.recover()
        offloaded, window = parts_of_returns(await version.messages())
        assert '/offload/long' in str(offloaded.content)
        assert window.outcome == 'success'
        assert 'xxxx' in str(window.content)


@pytest.mark.parametrize('dies_again', [False, True])
@pytest.mark.parametrize('is_kept', [True, False])
async def test_todos_and_long_results_of_a_subagent_are_restored(url: str, is_kept: bool, dies_again: bool) -> None:
    """They are those of its last step or of a later call."""
    todos = [{'content': 'walk', 'status': 'pending'}]
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='child', description='do'), 'end'],
        'do': [
            [tool_call('write_todos', todos=todos), tool_call('long', id='long')],
            tool_call('look', key='a'),
            tool_call('look', key='b'),
            tool_call('read_file', path='/offload/long', offset=0, limit=1),
            'did',
        ],
    }
    world = World(url, plan(answers))
    async with world.process(dies_after=nth(keeps_child, 3) if is_kept else ends('long')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    if dies_again:
        async with world.process(dies_after=keeps_child) as agent:
            assert await agent.recover() == []
    async with world.process() as agent:
        for _ in range(2):
            await agent.gc(grace_seconds=0)
        (version,) = await agent.recover()
        *_, thread = await version.subagents()
        child = await agent.load(thread.version_id or '')
        assert [todo.content for todo in child.todos] == ['walk']
        assert version.todos == []
        *_, window = parts_of_returns(await child.messages())
        assert (window.outcome, 'xxxx' in str(window.content)) == ('success', True)
