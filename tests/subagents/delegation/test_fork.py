"""Subagents with a copy-on-write fork of their parent's files."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, Conversation, DeferredToolRequests, RunContext, Tool, UserError

from pydantic_deep import DeepAgentDeps, StateBackend
from pydantic_deep.subagents import Subagent, Subagents
from pydantic_deep.testing import Answer, ScriptedModel, call

pytestmark = pytest.mark.anyio


async def write(ctx: RunContext[DeepAgentDeps], path: str, text: str) -> str:
    await ctx.deps.backend.write_bytes(path, text.encode())
    return 'written'


async def remove(ctx: RunContext[DeepAgentDeps], path: str) -> str:
    await ctx.deps.backend.remove(path)
    return 'removed'


async def read(ctx: RunContext[DeepAgentDeps], path: str) -> str:
    return (await ctx.deps.backend.read_bytes(path)).decode()


async def fail() -> str:
    raise LookupError('broken')


def confirm() -> str:
    return 'confirmed'


def worker(*steps: Answer, name: str = 'worker', **options: Any) -> Subagent:
    tools: list[Any] = [write, remove, read, fail, Tool(confirm, requires_approval=True)]
    return Subagent(name, 'Works.', model=ScriptedModel(*steps), tools=tools, isolation='fork', **options)


async def files(**texts: str) -> DeepAgentDeps:
    backend = StateBackend()
    for name, text in texts.items():
        await backend.write_bytes(f'/{name}.txt', text.encode())
    return DeepAgentDeps(backend=backend)


async def contents(deps: DeepAgentDeps, path: str) -> str:
    return (await deps.backend.read_bytes(path)).decode()


async def test_fork_of_a_successful_child_is_merged(ask: Any) -> None:
    deps = await files(old='1', gone='2')
    seen = list[bool]()

    async def peek() -> str:
        seen.append(await deps.backend.exists('/new.txt'))
        return 'ok'

    steps: list[Answer] = [
        call('write', path='/new.txt', text='3'),
        call('remove', path='/gone.txt'),
        call('peek'),
        call('read', path='/old.txt'),
        'all done',
    ]
    child = worker(*steps)
    child = Subagent('worker', 'x', model=child.model, tools=[*child.tools, peek], isolation='fork')
    returned = await ask(child, deps=deps)
    assert returned.content == 'all done'
    assert returned.metadata['merge'] == {'changed': ['/new.txt'], 'removed': ['/gone.txt'], 'conflicts': []}
    assert seen == [False]
    assert await contents(deps, '/new.txt') == '3'
    assert not await deps.backend.exists('/gone.txt')


async def conflicting(deps: DeepAgentDeps, answer: Answer, **options: Any) -> Any:
    async def meanwhile() -> str:
        await deps.backend.write_bytes('/a.txt', b'theirs')
        return 'ok'

    child = worker(call('write', path='/a.txt', text='mine'), call('meanwhile'), answer)
    return Subagent('worker', 'x', model=child.model, tools=[*child.tools, meanwhile], isolation='fork', **options)


NOTICE = 'Not merged, because these files were changed meanwhile; they are unchanged:\n- /a.txt: content'


async def test_a_merge_conflict_is_reported_and_preserves_the_parents_file(ask: Any) -> None:
    deps = await files(a='base')
    returned = await ask(await conflicting(deps, 'all done'), deps=deps)
    assert returned.content == f'all done\n\n{NOTICE}'
    [conflict] = returned.metadata['merge']['conflicts']
    assert (conflict['path'], conflict['kind']) == ('/a.txt', 'content')
    assert conflict['ours']['size'] == len('theirs')
    assert await contents(deps, '/a.txt') == 'theirs'


async def test_structured_output_with_a_conflict_has_a_separate_notice(ask: Any) -> None:
    deps = await files(a='base')
    child = await conflicting(deps, call('final_result', response=5), output_type=int)
    returned = await ask(child, deps=deps)
    assert returned.content == {'result': 5, 'notice': NOTICE}


async def test_fork_of_a_failed_child_is_discarded_and_its_changes_listed(
    ask: Any, caplog: pytest.LogCaptureFixture
) -> None:
    deps = await files(old='1')
    returned = await ask(worker(call('write', path='/new.txt', text='x'), call('fail')), deps=deps)
    assert returned.outcome == 'failed'
    assert returned.content.endswith('Its files were a fork. Discarded are its changes to /new.txt')
    assert not await deps.backend.exists('/new.txt')


async def test_concurrent_forks_are_both_merged(parent: Callable[..., Agent[Any, Any]]) -> None:
    deps = await files()
    children = [worker(call('write', path=f'/{i}.txt', text=i), 'ok', name=f'w{i}') for i in 'ab']
    tasks = [call('task', subagent=each.name, description='x') for each in children]
    await parent(tasks, 'done', subagents=children).run('go', deps=deps)
    assert [await contents(deps, f'/{i}.txt') for i in 'ab'] == ['a', 'b']


async def test_nested_fork_is_merged_into_its_parent_fork(ask: Any) -> None:
    deps = await files()
    deps.max_depth = 2
    inner = worker(call('write', path='/inner.txt', text='x'), 'ok', name='inner')
    task = call('task', subagent='inner', description='x')
    returned = await ask(worker(task, call('read', path='/inner.txt'), 'ok', subagents=[inner]), deps=deps)
    assert returned.metadata['merge']['changed'] == ['/inner.txt']
    assert await contents(deps, '/inner.txt') == 'x'


async def test_fork_survives_a_pause(answer: Any, reload: Callable[[Conversation], Conversation]) -> None:
    deps = await files(old='1')
    child = worker(call('write', path='/new.txt', text='kept'), call('confirm'), call('read', path='/new.txt'), 'ok')
    parent = Agent[Any, Any](
        ScriptedModel(call('task', subagent='worker', description='x'), 'done'),
        output_type=[str, DeferredToolRequests],
        capabilities=[Subagents([child])],
    )
    first = await parent.run('go', deps=deps)
    assert not await deps.backend.exists('/new.txt')
    conversation = reload(first.conversation)
    assert base64.b64encode(b'kept').decode() in str(conversation.deferred_tool_requests)
    again = DeepAgentDeps(backend=deps.backend)
    results = answer(conversation.deferred_tool_requests, {('call-1', 'call-2'): True})
    await parent.run(conversation=conversation, deferred_tool_results=results, deps=again)
    assert await contents(deps, '/new.txt') == 'kept'


@pytest.mark.parametrize('deps', [None, 'theirs', DeepAgentDeps(backend=None)])  # pyright: ignore[reportArgumentType]
async def test_unforkable_deps_are_refused_before_the_first_request(deps: object) -> None:
    model = ScriptedModel()
    parent = Agent[Any, Any](model, capabilities=[Subagents([worker()])])
    with pytest.raises(UserError, match=r"The subagent 'worker' has `isolation='fork'`, but `deps` is "):
        await parent.run('go', deps=deps)
    assert model.requests == []


async def test_failed_merge_lists_only_the_lost_changes(ask: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Full(StateBackend):
        async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
            if path == '/b.txt':
                raise OSError('full')
            await super().compare_and_swap(path, data, expected=expected)

    deps = DeepAgentDeps(backend=Full())
    writes = [call('write', path=path, text='x') for path in ('/a.txt', '/b.txt')]
    returned = await ask(worker(*writes, 'all done'), deps=deps)
    assert returned.content.endswith('Its files were a fork. Discarded are its changes to /b.txt')
    assert await contents(deps, '/a.txt') == 'x'
