"""The state of deps in versions: todos, uploads, large results and files of forks."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ToolReturnPart

from pydantic_deep import DeepAgentDeps, StateBackend, Subagent, Todo
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import AgentVersion, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore

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
