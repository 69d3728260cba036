"""The stored work of crashed attempts is restored: files of calls, of subagents and of forks."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep import Approve, LocalBackend, StateBackend
from pydantic_deep.store import Commit, VersionFilter
from pydantic_deep.testing import Answer
from tests.versions.recovery.crashes import (
    When,
    World,
    begins,
    ends,
    keeps_child,
    nth,
    parts_of_returns,
    plan,
    returns,
    starts,
    tool_call,
)

pytestmark = pytest.mark.anyio


async def test_crashed_recovery_is_recovered_without_repeating_calls(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='child', description='do'), 'end'],
        'do': [tool_call('send', key='a'), tool_call('send', key='b'), tool_call('send', key='c'), 'did'],
    }
    world = World(url, plan(answers))
    async with world.process(dies_after=ends('send')) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go')
    for key in ('b', 'c'):
        async with world.process(
            dies_after=lambda commit, key=key: ends('send')(commit) and world.ran[-1] == f'send {key}'
        ) as agent:
            assert await agent.recover() == []
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert [each.kind for each in await version.lineage()] == ['root', 'turn']
        states = [run.state for run in await agent.store.runs(conversation_id=version.conversation_id)]
        assert states == ['complete', 'interrupted', 'interrupted', 'interrupted']
    assert world.ran == ['send a', 'send b', 'send c']


async def test_completed_writes_to_files_in_memory_are_restored(url: str) -> None:
    write = tool_call('write_file', path='/a.txt', content='a')
    answers: dict[str, list[Answer]] = {
        'go': [
            [write, tool_call('task', subagent='child', description='do')],
            tool_call('read_file', path='/a.txt'),
            'end',
        ],
        'do': [tool_call('write_file', path='/b.txt', content='b'), tool_call('send', key='b'), 'did'],
    }
    world = World(url, plan(answers))
    async with world.process(dies_after=starts('send')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        (pending,) = version.pending
        done = await version.resume({pending.id: Approve()})
        assert sorted(await done.file_tree()) == ['/a.txt', '/b.txt']
        assert returns(await done.messages())[-1].endswith('a')


async def test_edit_of_a_file_in_memory_is_restored_with_its_call(url: str) -> None:
    """A repeated edit would not find the text to replace."""
    edit = tool_call('edit_file', path='/a.txt', old_string='one', new_string='two')
    world = World(
        url,
        plan({'go': [tool_call('write_file', path='/a.txt', content='one'), [edit, tool_call('pay', key='a')], 'end']}),
    )
    async with world.process(dies_after=ends('pay')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert await (await version.files()).read_bytes('/a.txt') == b'two'
        assert [part.outcome for part in parts_of_returns(await version.messages())] == ['success'] * 3
    assert world.ran == ['pay a']


async def test_unstored_edit_of_a_file_in_memory_is_made_again(url: str) -> None:
    edit = tool_call('edit_file', path='/a.txt', old_string='one', new_string='two')
    world = World(url, plan({'go': [tool_call('write_file', path='/a.txt', content='one'), edit, 'end']}))
    async with world.process(dies_before=nth(lambda commit: bool(commit.versions), 4)) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert await (await version.files()).read_bytes('/a.txt') == b'two'
        assert [part.outcome for part in parts_of_returns(await version.messages())] == ['success'] * 2


async def test_stored_file_changes_of_a_subagent_are_restored_with_their_calls(url: str) -> None:
    edit = tool_call('edit_file', path='/a.txt', old_string='one', new_string='two')
    answers: dict[str, list[Answer]] = {
        'go': [
            tool_call('write_file', path='/a.txt', content='one'),
            [edit, tool_call('task', subagent='child', description='do')],
            'end',
        ],
        'do': [
            tool_call('edit_file', path='/a.txt', old_string='two', new_string='three'),
            tool_call('look', key='b'),
            'did',
        ],
    }
    world = World(url, plan(answers))

    async with world.process(dies_after=nth(keeps_child, 3)) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert await (await version.files()).read_bytes('/a.txt') == b'three'
        assert [part.outcome for part in parts_of_returns(await version.messages())] == ['success'] * 3


async def test_subagent_in_a_fork_writes_its_files_again(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='fork', description='do'), 'end'],
        'do': [tool_call('write_file', path='/x.txt', content='x'), tool_call('send', key='a'), 'did'],
    }
    world = World(url, plan(answers))
    async with world.process(dies_after=ends('send')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert sorted(await version.file_tree()) == ['/x.txt']
    assert world.ran == ['send a']


FORKS: dict[str, tuple[dict[str, list[Answer]], When, list[str], list[str]]] = {
    'after a call that says nothing of its effect': (
        {
            'go': [tool_call('task', subagent='fork', description='do'), 'end'],
            'do': [[tool_call('make', key='m'), tool_call('write_file', path='/x', content='x')], tool_call('send', key='a'), 'did'],
        },
        ends('send'), ['/m', '/x'], ['make m', 'send a'],
    ),
    'after a fork below': (
        {
            'go': [tool_call('task', subagent='above', description='do'), 'end'],
            'do': [
                tool_call('write_file', path='/x', content='x'),
                tool_call('task', subagent='fork', description='below'), tool_call('send', key='a'), 'did',
            ],
            'below': [tool_call('make', key='m'), 'did'],
        },
        ends('send'), ['/m', '/x'], ['make m', 'send a'],
    ),
    'in a fork below': (
        {
            'go': [tool_call('task', subagent='above', description='do'), 'end'],
            'do': [tool_call('make', key='n'), tool_call('task', subagent='fork', description='below'), 'did'],
            'below': [tool_call('make', key='m'), tool_call('send', key='a'), 'did'],
        },
        ends('send'), ['/m', '/n'], ['make n', 'make m', 'send a'],
    ),
    'in a subagent that shares it': (
        {
            'go': [tool_call('task', subagent='above', description='do'), 'end'],
            'do': [tool_call('task', subagent='child', description='below'), 'did'],
            'below': [tool_call('make', key='m'), tool_call('send', key='a'), 'did'],
        },
        ends('send'), ['/m'], ['make m', 'send a'],
    ),
    'before it has done anything': (
        {
            'go': [tool_call('task', subagent='fork', description='do'), 'end'],
            'do': [tool_call('make', key='m'), 'did'],
        },
        lambda commit: bool(commit.delegations), ['/m'], ['make m'],
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize('case', FORKS)
async def test_files_of_a_fork_are_restored_and_no_call_runs_twice(url: str, case: str) -> None:
    answers, dies_after, files, ran = FORKS[case]
    world = World(url, plan(answers))
    async with world.process(dies_after=dies_after) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process(dies_after=nth(begins, 2)) as agent:  # and crashes before the fork has repeated anything
        assert await agent.recover() == []
    async with world.process() as agent:
        for _ in range(2):
            await agent.gc(grace_seconds=0)
        (version,) = await agent.recover()
        assert (version.output, sorted(await version.file_tree())) == ('end', files)
    assert world.ran == ran


async def test_writes_of_a_resumed_subagent_in_another_fork_are_restored(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='above', description='do'), 'end'],
        'do': [tool_call('make', key='n'), tool_call('task', subagent='child', description='below'), 'did'],
        'below': [tool_call('send', key='a'), tool_call('make', key='m'), tool_call('pay', key='b'), 'did'],
    }
    world = World(url, plan(answers), options={'interrupt_on': {'send': True}})
    async with world.process(dies_after=ends('pay')) as agent:
        pause = await (await agent.create(backend=StateBackend())).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert (version.output, sorted(await version.file_tree())) == ('end', ['/m', '/n'])
    assert world.ran == ['make n', 'send a', 'make m', 'pay b']


@pytest.mark.parametrize('dies', [False, True])
async def test_fork_resumes_after_its_files_moved_to_another_directory(url: str, tmp_path: Path, *, dies: bool) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='fork', description='do'), 'end'],
        'do': [tool_call('write_file', path='m', content='m'), tool_call('send', key='a'), 'did'],
    }
    world = World(url, plan(answers), options={} if dies else {'interrupt_on': {'send': True}})
    (tmp_path / 'w').mkdir()
    async with world.process(dies_after=ends('send') if dies else None) as agent:
        root = await agent.create(backend=LocalBackend(tmp_path / 'w', allow_commands=True))
        await root.advance('go')
    async with world.process() as agent:
        await (await (await agent.load(root.id)).with_metadata({'mine': True})).checkout()
        if dies:
            (version,) = await agent.recover()
        else:
            about = VersionFilter(kinds=['pause'], conversation_id=root.conversation_id)
            (waiting,) = await agent.store.versions(about)
            pause = await agent.load(waiting.id)
            version = await pause.resume({pause.pending[0].id: Approve()})
        assert (version.output, sorted(await version.file_tree())) == ('end', ['/m'])
        assert list((tmp_path / 'w').iterdir()) == [], 'it worked in a view'
    assert world.ran == ['send a']


async def test_change_under_a_fork_before_a_crash_is_still_a_conflict(url: str, tmp_path: Path) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='fork', description='do'), 'end'],
        'do': [tool_call('make', key='m'), tool_call('send', key='a'), 'did'],
    }
    world = World(url, plan(answers))
    (tmp_path / 'm').write_text('before')

    def dies(commit: Commit) -> bool:
        if ends('make')(commit):
            (tmp_path / 'm').write_text('by hand')
        return ends('send')(commit)

    async with world.process(dies_after=dies) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        (returned,) = [part for part in parts_of_returns(await version.messages()) if part.tool_name == 'task']
        assert 'Not merged' in str(returned.content)
    assert (tmp_path / 'm').read_text() == 'by hand'
