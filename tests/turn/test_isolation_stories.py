"""Many users of one agent: in whole turns nothing leaks, is lost, or ends a run."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, cast

import anyio
import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import (
    CompositeBackend,
    DeepAgentDeps,
    Filesystem,
    LocalBackend,
    ReadOnlyBackend,
    StateBackend,
    Todo,
    Todos,
    create_deep_agent,
)
from pydantic_deep.testing import Answer, ScriptedModel, call, deps_for_test

pytestmark = pytest.mark.anyio

USERS = 200
"""Number of concurrent users: the number at which similar frameworks have failed, and fast enough for CI."""


def prompt_of(messages: list[ModelMessage]) -> str:
    return next(str(p.content) for m in messages for p in m.parts if p.part_kind == 'user-prompt')


def plan_write_look(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Play a user who writes a name to every place and then searches all of them."""
    name = prompt_of(messages)
    steps: list[Answer] = [
        [
            call('write_todos', todos=[{'content': name, 'status': 'pending'}]),
            call('write_file', path='me.txt', content=name),
            ToolCallPart('long', {}, 'same-id'),
            call('fail'),
        ],
        [call('grep', pattern='user'), call('ls', path='/offload'), call('read_file', path='/offload/same-id')],
        f'done, {name}',
    ]
    return steps[sum(isinstance(m, ModelRequest) for m in messages) - 1]


@pytest.mark.slow
@pytest.mark.parametrize('with_deps', [True, False])
async def test_two_hundred_concurrent_runs_do_not_leak_into_each_other(with_deps: bool) -> None:
    agent = create_deep_agent(ScriptedModel(then=plan_write_look))
    deps_by_name = {f'user-{i}-': DeepAgentDeps() for i in range(USERS)}
    seen_by_name: dict[str, list[ModelMessage]] = {}

    @agent.tool
    async def long(ctx: RunContext[DeepAgentDeps]) -> str:
        await anyio.lowlevel.checkpoint()
        return f'{ctx.prompt} ' * 10_000

    @agent.tool
    async def fail(ctx: RunContext[DeepAgentDeps]) -> str:
        raise ValueError(ctx.prompt)

    async def run(name: str) -> None:
        if with_deps:
            result = await agent.run(name, deps=deps_by_name[name])
        else:
            result = await agent.run(name)  # pyright: ignore[reportArgumentType] - core's signature wants deps
        assert result.output == f'done, {name}'
        seen_by_name[name] = result.all_messages()

    async with anyio.create_task_group() as group:
        for name in deps_by_name:
            group.start_soon(run, name)
    for name, messages in seen_by_name.items():
        assert set(re.findall(r'user-\d+-', str(messages))) == {name}
        if with_deps:
            assert [todo.content for todo in deps_by_name[name].todos] == [name]
            assert await deps_by_name[name].backend.read_bytes('/me.txt') == name.encode()


async def test_concurrent_runs_with_the_same_deps_lose_no_edit() -> None:
    def edit(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        if len(messages) > 1:
            return 'done'
        return call('edit_file', path='f', old_string=f'[{prompt_of(messages)}]', new_string='[done]')

    deps = deps_for_test({'/f': ''.join(f'[{i}]\n' for i in range(30))})
    agent = create_deep_agent(ScriptedModel(then=edit))

    async def run(name: str) -> None:
        await agent.run(name, deps=deps)

    async with anyio.create_task_group() as group:
        for i in range(30):
            group.start_soon(run, str(i))
    assert (await deps.backend.read_bytes('/f')).count(b'[done]') == 30


async def test_cached_prefix_is_stable_while_todos_and_uploads_change() -> None:
    deps = DeepAgentDeps()

    def todos(count: int) -> ToolCallPart:
        return call('write_todos', todos=[{'content': f'step {i}', 'status': 'pending'} for i in range(count)])

    async def receive(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        await deps.upload(f'{len(messages)}.csv', b'1,2\n')
        return call('ls', path='/uploads')

    model = ScriptedModel(todos(2), receive, todos(3), 'first', receive, todos(1), 'second', 'third', 'fourth')
    agent = create_deep_agent(model, instructions='Be careful.')
    history: list[ModelMessage] = []
    for turn in range(4):
        result = await agent.run(f'turn {turn}', deps=deps, message_history=history)
        history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(result.all_messages()))
        if turn == 2:  # the application removes everything between two turns
            deps.uploads.clear()
            deps.todos.clear()
    assert len(model.requests) == 9
    assert len({request.instructions for request in model.requests}) == 1
    assert len({repr(request.tools) for request in model.requests}) == 1
    before: list[object] = []
    for request in model.requests:
        parts: list[object] = [
            (p.part_kind, getattr(p, 'content', ''), getattr(p, 'args', '')) for m in request.messages for p in m.parts
        ]
        assert parts[: len(before)] == before
        before = parts


STEPS: list[Answer] = [
    [
        call('write_todos', todos=[{'content': 'a', 'status': 'in_progress'}]),
        call('write_file', path='a.txt', content='1\n'),
    ],
    [call('read_file', path='a.txt'), call('fail')],
    call('edit_file', path='a.txt', old_string='1', new_string='2'),
    call('long'),
    'The end.',
]
"""A turn with a plan, files, a failure and a large result."""


Play: TypeAlias = Callable[[Agent[DeepAgentDeps], DeepAgentDeps], Awaitable[list[ModelMessage]]]


async def by_run(agent: Agent[DeepAgentDeps], deps: DeepAgentDeps) -> list[ModelMessage]:
    return (await agent.run('go', deps=deps)).all_messages()


async def by_stream(agent: Agent[DeepAgentDeps], deps: DeepAgentDeps) -> list[ModelMessage]:
    async with agent.run_stream('go', deps=deps) as stream:
        await stream.get_output()
        return stream.all_messages()


async def by_events(agent: Agent[DeepAgentDeps], deps: DeepAgentDeps) -> list[ModelMessage]:
    async with agent.run_stream_events('go', deps=deps) as events:
        *_, last = [event async for event in events]
    assert last.event_kind == 'agent_run_result'
    return last.result.all_messages()


async def by_steps(agent: Agent[DeepAgentDeps], deps: DeepAgentDeps) -> list[ModelMessage]:
    async with agent.iter('go', deps=deps) as run:
        async for _ in run:
            pass
        return run.all_messages()


@pytest.mark.parametrize('play', [by_stream, by_events, by_steps])
async def test_streamed_turn_equals_the_turn_without_streaming(play: Play) -> None:
    async def outcome(play: Play) -> list[object]:
        model, deps = ScriptedModel(*STEPS), DeepAgentDeps()
        agent = create_deep_agent(model)

        @agent.tool_plain
        def fail() -> str:
            raise ValueError('broken')

        @agent.tool_plain
        def long() -> str:
            return 'line\n' * 20_000

        messages = await play(agent, deps)
        parts: list[object] = [
            (p.part_kind, getattr(p, 'content', None), getattr(p, 'args', None), getattr(p, 'outcome', None))
            for m in messages
            for p in m.parts
        ]
        told: list[object] = [request.instructions for request in model.requests]
        return [*parts, *told, list(deps.todos), await deps.backend.read_bytes('/a.txt')]

    assert await outcome(play) == await outcome(by_run)


async def test_run_cancelled_during_a_write_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    old, new = b'o' * 3_000_000, b'n' * 3_000_000
    backend = LocalBackend(tmp_path)

    async def replace(deps: DeepAgentDeps) -> None:
        model = ScriptedModel(call('write_file', path='f.txt', content=new.decode()), 'done')
        await create_deep_agent(model).run('go', deps=deps)

    for rounds in range(30):
        await backend.write_bytes('/f.txt', old)  # waits for a write that the previous round may still be making
        assert [path.name for path in tmp_path.iterdir()] == ['f.txt']
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(replace, DeepAgentDeps(backend=backend))
                for _ in range(rounds * 4):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        assert (tmp_path / 'f.txt').read_bytes() in (old, new)
    await backend.write_bytes('/f.txt', b'free')  # no lock is left behind
    assert (tmp_path / 'f.txt').read_bytes() == b'free'


@dataclass
class Own:
    """Deps of an application without our attributes."""

    name: str = 'ada'


async def test_capabilities_work_with_foreign_deps() -> None:
    files = StateBackend()
    model = ScriptedModel(
        [call('write_file', path='a', content='x'), call('write_todos', todos=[{'content': 'c', 'status': 'pending'}])],
        'done',
    )
    agent = Agent(model, deps_type=Own, capabilities=[Filesystem(backend=files), Todos()])
    await agent.run('go', deps=Own())
    assert await files.read_bytes('/a') == b'x'
    assert [p.outcome for p in model.requests[-1].tool_returns] == ['success', 'success']


@dataclass
class Shared:
    """Deps of an application with its own backend and todos."""

    backend: StateBackend = field(default_factory=StateBackend)
    todos: list[Todo] = field(default_factory=list[Todo])


async def test_deps_need_only_the_attributes() -> None:
    deps = Shared()
    model = ScriptedModel(
        [call('write_file', path='a', content='x'), call('write_todos', todos=[{'content': 'c', 'status': 'pending'}])],
        'done',
    )
    await Agent(model, deps_type=Shared, capabilities=[Filesystem(), Todos()]).run('go', deps=deps)
    assert await deps.backend.read_bytes('/a') == b'x'
    assert deps.todos == [Todo(content='c', status='pending')]


@pytest.mark.parametrize('backend', ['work', Path('work'), None, StateBackend])
async def test_invalid_backend_is_refused_before_the_first_request(backend: object) -> None:
    model = ScriptedModel('done')
    deps = DeepAgentDeps(backend=backend)  # pyright: ignore[reportArgumentType]
    name = f'the class {backend.__name__}' if isinstance(backend, type) else type(backend).__name__
    with pytest.raises(UserError, match=f'{name}, which is not a backend'):
        await create_deep_agent(model).run('go', deps=deps)
    assert model.requests == []


async def test_foreign_deps_are_refused_before_the_first_request() -> None:
    model = ScriptedModel('done')
    with pytest.raises(UserError, match='`deps` is Own, and this agent needs DeepAgentDeps'):
        await create_deep_agent(model).run('go', deps=cast('DeepAgentDeps', Own()))
    assert model.requests == []


async def test_mounts_with_a_common_name_prefix_are_separate() -> None:
    memory, mem = StateBackend({'/a': 'memory'}), StateBackend({'/a': 'mem'})
    backend = CompositeBackend(StateBackend({'/memo': 'file'}), {'/mem': mem, '/memory': ReadOnlyBackend(memory)})
    model = ScriptedModel(
        call('write_file', path='mem/b', content='m'),
        call('write_file', path='/memory/b', content='m'),
        call('write_file', path='/memory2', content='2'),
        call('edit_file', path='./mem//a', old_string='mem', new_string='MEM'),
        call('read_file', path='/mem/../memory/a'),
        call('grep', pattern='(?i)mem|file'),
        call('glob', pattern='mem*'),
        'done',
    )
    await create_deep_agent(model).run('go', deps=DeepAgentDeps(backend=backend))
    returns = model.requests[-1].tool_returns
    assert [p.outcome for p in returns] == ['success', 'failed', *['success'] * 5]
    assert [str(p.content) for p in returns[5:]] == [
        '/mem/a\n1: MEM\n/memo\n1: file\n/memory/a\n1: memory',
        '/memo\n/memory2',
    ]
    assert (await mem.read_bytes('/a'), await mem.read_bytes('/b')) == (b'MEM', b'm')
    assert await memory.read_bytes('/a') == b'memory'
