"""The ledger of calls: completed calls are not repeated, and calls that may have run need approval."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep import Approve, Deny, Edit, LocalBackend, StateBackend
from pydantic_deep.store import Commit
from pydantic_deep.testing import Answer
from tests.versions.recovery.crashes import (
    MAY_HAVE_RUN,
    When,
    World,
    ends,
    parts_of_returns,
    plan,
    returns,
    starts,
    tool_call,
)

pytestmark = pytest.mark.anyio


async def test_completed_calls_are_kept_reads_rerun_and_others_need_approval(url: str) -> None:
    world = World(
        url, plan({'go': [[tool_call('look', key='b'), tool_call('send', key='a'), tool_call('pay', key='c')], 'end']})
    )
    world.may_pay.clear()

    def is_sent(commit: Commit) -> bool:
        if ends('send')(commit):
            world.may_pay.set()
        return False

    async with world.process(dies_before=ends('pay'), dies_after=is_sent) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    assert sorted(world.ran) == ['look b', 'pay c', 'send a']
    async with world.process() as agent:
        (version,) = await agent.recover()
        (pending,) = version.pending
        assert (pending.tool, pending.arguments) == ('pay', {'key': 'c'})
        assert pending.preview is not None
        assert str(pending.preview).startswith(MAY_HAVE_RUN)
        assert sorted(world.ran) == ['look b', 'look b', 'pay c', 'send a']
        done = await version.resume({pending.id: Approve()})
        assert sorted(returns(await done.messages())) == ['paid c', 'seen b', 'sent a']
        assert sorted(world.ran) == ['look b', 'look b', 'pay c', 'pay c', 'send a']


async def test_crash_before_the_first_call_starts_loses_only_the_response(url: str) -> None:
    """The response and the start of its first call are one commit: the model is asked again, and no approval is needed."""
    answers: dict[str, list[Answer]] = {'go': [tool_call('look', key='a'), tool_call('send', key='b'), 'end']}
    world = World(url, plan(answers))
    async with world.process(dies_before=starts('send')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    assert world.ran == ['look a']
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert returns(await version.messages()) == ['seen a', 'sent b']
    assert world.asked == ['go 0', 'go 1', 'go 1', 'go 2']
    assert world.ran == ['look a', 'look a', 'send b']


async def test_edited_call_that_may_have_run_needs_approval_with_its_new_arguments(url: str) -> None:
    world = World(url, plan({'go': [tool_call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
    async with world.process(dies_before=ends('send')) as agent:
        pause = await (await agent.create(backend=StateBackend())).advance('go')
        await pause.resume({pause.pending[0].id: Edit({'key': 'b'})})
    async with world.process() as agent:
        (version,) = await agent.recover()
        (pending,) = version.pending
        assert pending.arguments == {'key': 'b'}
        assert pending.decisions == ('approve', 'deny')
        assert world.ran == ['send b']
        denied = await version.resume({pending.id: Deny('It was sent.')})
        assert denied.output == 'end'
    assert world.ran == ['send b']


async def test_call_that_may_have_run_and_would_fail_now_fails_without_approval(url: str, tmp_path: Path) -> None:
    """A call of a crashed process whose preview shows that it would fail is not put before a person but fails at once.
    An edit whose text somebody has replaced since is such a call."""
    (tmp_path / 'work').mkdir()
    backend = LocalBackend(tmp_path / 'work')
    await backend.write_bytes('/a.txt', b'one')
    edit = tool_call('edit_file', path='/a.txt', old_string='one', new_string='two')
    world = World(url, plan({'go': [edit, 'end']}))
    async with world.process(dies_before=ends('edit_file')) as agent:
        await (await agent.create(backend=backend)).advance('go')
    assert await backend.read_bytes('/a.txt') == b'two'
    await backend.write_bytes('/a.txt', b'three')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert (version.output, version.pending) == ('end', [])
        [returned] = parts_of_returns(await version.messages())
        assert returned.outcome == 'failed'
        assert str(returned.content).startswith(f'{MAY_HAVE_RUN} It was not run again, because it would fail:')
    assert await backend.read_bytes('/a.txt') == b'three'


async def test_stored_change_of_an_unfinished_call_needs_approval(url: str) -> None:
    answers: dict[str, list[Answer]] = {'go': [[tool_call('draft'), tool_call('send', key='a')], 'end']}
    world = World(url, plan(answers))
    world.may_pay.clear()
    async with world.process(dies_after=ends('send')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert [each.tool for each in version.pending] == ['draft']
        assert await (await version.files()).read_bytes('/draft.txt') == b'half'
    assert world.ran == ['send a']


async def test_approved_write_in_a_subagent_is_not_asked_again(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='child', description='do'), 'end'],
        'do': [tool_call('write_file', path='/x.txt', content='x'), tool_call('send', key='after'), 'did'],
    }
    world = World(url, plan(answers), options={'interrupt_on': {'write_file': True}})
    async with world.process(dies_after=ends('send')) as agent:
        pause = await (await agent.create(backend=StateBackend())).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.state == 'complete'
        assert sorted(await version.file_tree()) == ['/x.txt']
    assert world.ran == ['send after']


@pytest.mark.parametrize('has_run', [False, True])
async def test_write_to_a_file_that_was_edited_since_shows_its_diff_and_is_approved_once(
    url: str, tmp_path: Path, has_run: bool
) -> None:
    world = World(url, plan({'go': [tool_call('write_file', path='/a.txt', content='a\n'), 'end']}))
    dies: dict[str, When] = (
        {'dies_before': ends('write_file')}
        if has_run
        else {'dies_after': lambda commit: bool(commit.versions and commit.append)}
    )
    async with world.process(**dies) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    (tmp_path / 'a.txt').write_text('mine\n')
    async with world.process() as agent:
        (version,) = await agent.recover()
        (pending,) = version.pending
        assert pending.preview is not None
        assert str(pending.preview).startswith(MAY_HAVE_RUN)
        assert '-mine' in str(pending.preview)
        assert (tmp_path / 'a.txt').read_text() == 'mine\n'
        done = await version.resume({pending.id: Approve()})
        assert done.output == 'end'
        assert sorted(await done.file_tree()) == ['/a.txt']
        assert (tmp_path / 'a.txt').read_text() == 'a\n'
