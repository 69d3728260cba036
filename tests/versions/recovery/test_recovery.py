"""Recovery of crashed runs: each is taken once, finished without its process, and never lost.

A crash is simulated by a store that commits nothing from some moment on and is then closed. Real kills are tested in
`test_kill`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent, CancellationToken, DeferredToolRequests, RunCancelled
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import Approve, DeepAgentDeps, LocalBackend, StateBackend, create_deep_agent
from pydantic_deep.store import (
    ApprovalAnsweredError,
    Commit,
    RunEnd,
    RunTakenOverError,
    StoreUnavailableError,
    VersionFilter,
    new_id,
    open_engine,
)
from pydantic_deep.testing import Answer, ScriptedModel
from pydantic_deep.versions import AgentVersion, ApprovalInbox, VersionedAgent
from tests.versions.recovery.crashes import (
    MortalStore,
    When,
    World,
    begins,
    ends,
    keeps_child,
    nth,
    parts_of_returns,
    plan,
    returns,
    tool_call,
)

pytestmark = pytest.mark.anyio


def keeps(commit: Commit) -> bool:
    return any(version.kind == 'step' for version in commit.versions)


async def test_answers_are_used_once_if_their_run_crashes_before_it_starts(url: str) -> None:
    world = World(url, plan({'go': [tool_call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
    async with world.process(dies_after=nth(begins, 2)) as agent:
        pause = await (await agent.create(backend=StateBackend())).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    assert world.ran == []
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert await ApprovalInbox(agent.store).list() == []
    assert world.ran == ['send a']


async def test_crash_between_claiming_and_resuming_leaves_the_run_recoverable(url: str) -> None:
    world = World(url, plan({'go': ['end']}))
    async with world.process(dies_after=begins) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process(dies_before=begins) as agent:
        assert await agent.recover() == []
    async with world.process() as agent:
        assert [version.output for version in await agent.recover()] == ['end']


@pytest.mark.parametrize('output_type', [str, [str, DeferredToolRequests]])
async def test_run_of_an_agent_with_output_validators_is_recovered(url: str, output_type: Any) -> None:
    """pydantic-ai rejects another output type for such an agent, so its recovered run keeps its own."""

    def open_agent(store: MortalStore) -> VersionedAgent[Any, Any]:
        agent = Agent[Any, Any](ScriptedModel('end'), output_type=output_type, name='agent')
        agent.output_validator(str.upper)
        return VersionedAgent(agent, store)

    async with MortalStore(await open_engine(url)) as store:
        store.dies_after = begins
        with pytest.raises(StoreUnavailableError):
            await (await open_agent(store).create()).advance('go')
    async with MortalStore(await open_engine(url)) as store:
        assert [version.output for version in await open_agent(store).recover()] == ['END']


async def test_concurrent_recoveries_take_each_run_once(url: str) -> None:
    world = World(url, plan({f'go {number}': [tool_call('send', key=str(number)), 'end'] for number in range(5)}))
    for number in range(5):
        async with world.process(dies_after=begins) as agent:
            await (await agent.create(backend=StateBackend())).advance(f'go {number}')
    async with world.process() as one, world.process() as other:
        found = await asyncio.gather(one.recover(), other.recover())
        assert sum(map(len, found)) == 5
        assert {version.state for versions in found for version in versions} == {'complete'}
    assert sorted(world.ran) == [f'send {number}' for number in range(5)]


async def test_process_presumed_dead_commits_nothing_when_it_resumes(url: str) -> None:
    holds, goes_on = asyncio.Event(), asyncio.Event()

    async def script(said: str, count: int) -> None:
        holds.set()
        await goes_on.wait()

    world = World(url, plan({'go': [tool_call('send', key='a'), 'end']}))
    async with world.process() as sleeper, world.process() as other:
        root = await sleeper.create(backend=StateBackend())
        agent = create_deep_agent(_Slow(script), name='agent', toolsets=[world.tools])
        slow = VersionedAgent(agent, sleeper.store)
        turn = asyncio.create_task((await slow.load(root.id)).advance('go'))
        await holds.wait()
        database = cast('Any', sleeper.store).engine._database
        database.owners.discard(sleeper.store.owner)  # what other processes see of a disconnected machine
        (version,) = await other.recover()
        before = await other.store.count(VersionFilter())
        goes_on.set()
        with pytest.raises(RunTakenOverError):
            await turn
        database.owners.add(sleeper.store.owner)
        assert await other.store.count(VersionFilter()) == before
        assert version.output == 'end'
    assert world.ran == ['send a']


class _Slow(ScriptedModel):
    """Answers with a call after an event."""

    def __init__(self, wait: Callable[[str, int], Any]) -> None:
        async def then(messages: list[ModelMessage], info: AgentInfo) -> Answer:
            await wait('', 0)
            return tool_call('send', key='late')

        super().__init__(then=then)


async def test_directory_has_the_files_of_the_recovered_version(url: str, tmp_path: Path) -> None:
    write = tool_call('write_file', path='/a.txt', content='a')
    world = World(url, plan({'go': [write, tool_call('write_file', path='/b.txt', content='b'), 'end']}))
    async with world.process(dies_before=nth(ends('write_file'), 2)) as agent:
        (tmp_path / 'mine.txt').write_text('before')
        root = await agent.create(backend=LocalBackend(tmp_path))
        (tmp_path / 'mine.txt').write_text('edited by hand')
        await root.advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        tree = await version.file_tree()
        assert sorted(tree) == ['/a.txt', '/b.txt', '/mine.txt']
        assert {f'/{path.name}' for path in tmp_path.iterdir()} == set(tree)
        assert [each.kind for each in await version.lineage()] == ['root', 'edit', 'turn']


async def test_manual_edit_before_a_crashed_turn_stays_in_the_directory(url: str, tmp_path: Path) -> None:
    world = World(url, plan({'go': [tool_call('write_file', path='/a.txt', content='a'), 'end']}))
    async with world.process(dies_after=begins) as agent:
        root = await agent.create(backend=LocalBackend(tmp_path))
        (tmp_path / 'mine.txt').write_text('edited by hand')
        await root.advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert sorted(await version.file_tree()) == ['/a.txt', '/mine.txt']
        assert (tmp_path / 'a.txt').read_text() == 'a', 'the turn worked in the directory, not in a view'


REFUSED: dict[str, tuple[When, int]] = {
    'the beginning of a subagent': (begins, 2),
    'the beginning of one below it': (begins, 3),
    'a step': (keeps, 3),
    'a step of one below it': (keeps, 5),
    'the end of a call that is made again': (ends('write_file'), 1),
    'the end of one below it': (lambda commit: bool(commit.ends), 1),
    'its end': (lambda commit: bool(commit.ends), 2),
}


@pytest.mark.parametrize('case', REFUSED)
async def test_transient_store_failure_within_a_subagent_loses_nothing(url: str, case: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='above', description='do'), 'end'],
        'do': [tool_call('make', key='n'), tool_call('task', subagent='fork', description='below'), 'did'],
        'below': [tool_call('make', key='m'), tool_call('write_file', path='/x', content='x'), 'did'],
    }
    world = World(url, plan(answers))
    async with world.process(fails_at=nth(*REFUSED[case])) as agent:
        with pytest.raises(StoreUnavailableError, match='full') as caught:
            await (await agent.create(backend=StateBackend())).advance('go')
        (cut_off,) = await agent.store.versions(VersionFilter(agent_name='agent', kinds=['step']))
        (suspended,) = await agent.suspended()
        assert (suspended.version_id, suspended.has_moved_on) == (cut_off.id, False)
        assert caught.value.__notes__ == [
            f'The run {suspended.id} is suspended after the version {cut_off.id}: `VersionedAgent.recover` resumes it, '
            'and `VersionedAgent.cancel` ends it.'
        ]
        (version,) = await agent.recover()
        assert (version.output, sorted(await version.file_tree())) == ('end', ['/m', '/n', '/x'])
        assert await agent.store.runs(states=['running']) == []
    assert world.ran == ['make n', 'make m']
    assert world.asked.count('go 0') == world.asked.count('do 0') == 1


async def test_subagents_beside_a_failed_one_are_recovered_too(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [
            [
                tool_call('task', subagent='fork', description='do'),
                tool_call('task', subagent='child', description='look'),
            ],
            'end',
        ],
        'do': [tool_call('make', key='m'), tool_call('write_file', path='/x', content='x'), 'did'],
        'look': [tool_call('look', key='a'), tool_call('look', key='b'), 'saw'],
    }
    world = World(url, plan(answers))
    async with world.process(fails_at=nth(ends('write_file'), 1)) as agent:
        with pytest.raises(StoreUnavailableError):
            await (await agent.create(backend=StateBackend())).advance('go')
        (version,) = await agent.recover()
        assert returns(await version.messages()) == ['did', 'saw']
        assert sorted(await version.file_tree()) == ['/m', '/x']
        assert await agent.store.runs(states=['running']) == []
    assert world.ran.count('make m') == 1


async def test_foreign_store_error_in_a_subagent_fails_only_the_subagent(url: str) -> None:
    theirs = StoreUnavailableError('Theirs.')

    def script(said: str, count: int) -> Answer:
        if said == 'do':
            raise theirs
        return [tool_call('task', subagent='child', description='do'), 'end'][count]

    async with World(url, script).process() as agent:
        version = await (await agent.create(backend=StateBackend())).advance('go')
        assert version.output == 'end'
        (part,) = parts_of_returns(await version.messages())
        assert part.outcome == 'failed'


async def test_subagent_is_recovered_once_the_store_is_readable_again(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='fork', description='do'), 'end'],
        'do': [tool_call('make', key='m'), 'did'],
    }
    world = World(url, plan(answers))
    async with world.process(dies_after=ends('make')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        cast('MortalStore', agent.store).unread_after = lambda commit: bool(commit.delegations)
        assert await agent.recover() == []
        (version,) = await agent.recover()
        assert (version.output, sorted(await version.file_tree())) == ('end', ['/m'])
        assert await agent.store.runs(states=['running']) == []
    assert world.ran == ['make m']


async def test_run_ends_if_another_run_uses_its_answers(url: str) -> None:
    world = World(url, plan({'go': [tool_call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
    async with world.process(dies_after=nth(begins, 2)) as agent:
        pause = await (await agent.create(backend=StateBackend())).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    async with world.process() as agent:
        assert (await (await agent.load(pause.id)).resume()).output == 'end'
        with pytest.raises(ApprovalAnsweredError, match='has acted on it already'):
            await (await agent.load(pause.id)).resume()
        assert await agent.recover() == []
        states = [run.state for run in await agent.store.runs(conversation_id=pause.conversation_id)]
        assert states == ['complete', 'interrupted', 'awaiting_approval']
    assert world.ran == ['send a']


async def test_run_with_a_deleted_base_fails_and_does_not_block_other_recoveries(url: str) -> None:
    world = World(url, plan({'go': ['end']}))
    roots: list[AgentVersion[Any, Any]] = []
    for _ in range(2):
        async with world.process(dies_after=begins) as agent:
            roots.append(await agent.create(backend=StateBackend()))
            await roots[-1].advance('go')
    async with world.process() as agent:
        await agent.delete(roots[0].id)
        (version,) = await agent.recover()
        assert version.conversation_id == roots[1].conversation_id
        (run,) = await agent.store.runs(conversation_id=roots[0].conversation_id)
        assert run.state == 'failed'
        assert run.error is not None
        assert 'VersionNotFoundError' in run.error


async def test_runs_of_other_agents_are_not_recovered(url: str) -> None:
    world = World(url, plan({'go': ['end']}))
    async with world.process(dies_after=begins) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        other = VersionedAgent(create_deep_agent(world.model(), name='other'), agent.store)
        assert await other.recover() == []
        assert len(await agent.recover()) == 1


async def test_subagent_that_outlived_its_parent_is_ended(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='child', description='do'), 'end'],
        'do': [tool_call('send', key='a'), 'did'],
    }
    world = World(url, plan(answers))
    async with world.process(dies_before=ends('send')) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go')
    async with world.process() as agent:
        (parent,) = await agent.store.runs(conversation_id=root.conversation_id)
        await agent.store.commit(Commit(ends=[RunEnd(run_id=parent.id, state='failed')]))
        assert await agent.recover() == []
        assert await agent.store.runs(states=['running']) == []


async def test_turn_with_a_deleted_base_is_recovered_below_its_last_step(url: str) -> None:
    world = World(url, plan({'go': [tool_call('send', key='a'), 'end']}))
    async with world.process(dies_after=ends('send')) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go')
    async with world.process() as agent:
        await agent.delete(root.id)
        (version,) = await agent.recover()
        assert version.output == 'end'
        lineage = await version.lineage()
        assert [each.kind for each in lineage] == ['step', 'turn']
        assert lineage.truncated_at == root.id
    assert world.ran == ['send a']


async def test_subagent_that_crashed_before_its_first_response_restarts_in_its_thread(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='child', description='do'), 'end'],
        'do': ['did'],
    }
    world = World(url, plan(answers))
    async with world.process(dies_after=nth(begins, 2)) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert [thread.state for thread in await version.subagents()] == ['complete']
    assert world.asked == ['go 0', 'do 0', 'go 1']


def prompts_of(messages: Sequence[ModelMessage]) -> list[object]:
    parts = [part for message in messages for part in message.parts]
    return [part.content for part in parts if isinstance(part, UserPromptPart)]


async def tip_of(agent: VersionedAgent[Any, Any]) -> AgentVersion[Any, Any]:
    """Return the newest version, including steps."""
    return (await agent.list(steps=True, limit=1))[0]


async def test_finish_crashed_preserves_completed_calls_and_prevents_recovery(url: str, tmp_path: Path) -> None:
    todos = [{'content': 'walk', 'status': 'pending'}]
    first = [
        tool_call('write_todos', todos=todos),
        tool_call('write_file', path='/a.txt', content='a'),
        tool_call('edit_file', path='/a.txt', old_string='b', new_string='c'),
        tool_call('long', id='long'),
        tool_call('pay', key='c'),
    ]
    world = World(url, plan({'go': [first, 'end'], 'more': ['more']}))
    world.may_pay.clear()
    ended: set[str] = set()

    def is_all_but_paid(commit: Commit) -> bool:
        ended.update(each.tool_name for each in commit.calls if each.status != 'started')
        return len(ended) == 4

    async with world.process(dies_after=is_all_but_paid) as agent:
        root = await agent.create(backend=LocalBackend(tmp_path))
        await root.advance('go')
    async with world.process() as agent:
        step = await tip_of(agent)
        closed = await agent.finish_crashed(step)
        assert (closed.kind, closed.state, closed.parent_id, closed.name) == ('turn', 'interrupted', root.id, None)
        assert await agent.finish_crashed(closed) is closed
        told = {part.tool_name: part.outcome for part in parts_of_returns(await closed.messages())}
        assert told == {'write_todos': 'success', 'write_file': 'success', 'edit_file': 'retried', 'long': 'success'}
        assert [todo.content for todo in closed.todos] == ['walk']
        assert list(await closed.file_tree()) == ['/a.txt']
        assert closed.usage.requests == 1
        (run,) = await agent.store.runs(conversation_id=root.conversation_id)
        assert (run.state, json.loads(run.usage)['requests']) == ('interrupted', 1)
        assert await agent.recover() == []

        more = await closed.advance('more')
        paid = next(part for part in parts_of_returns(await more.messages()) if part.tool_name == 'pay')
        assert 'interrupted' in str(paid.content)
        assert [each.kind for each in await more.lineage()] == ['root', 'turn', 'turn']
        await (await agent.load(root.id)).checkout()
        assert list(tmp_path.iterdir()) == []
    assert world.asked == ['go 0', 'more 0']


async def test_finish_crashed_before_the_first_response_keeps_the_prompt(url: str) -> None:
    """As after a cancellation, the conversation continues after the prompt."""
    world = World(url, plan({'go': ['end'], 'more': ['more']}))
    async with world.process(dies_after=begins) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go')
    async with world.process() as agent:
        closed = await agent.finish_crashed(await agent.load(root.id))
        assert (closed.kind, closed.state, closed.parent_id) == ('turn', 'interrupted', root.id)
        assert prompts_of(await closed.messages()) == ['go']
        assert await agent.recover() == []
        more = await closed.advance('more')
        assert (more.output, prompts_of(await more.messages())) == ('more', ['go', 'more'])


async def test_finish_crashed_before_the_first_response_of_a_branch_keeps_the_branch(url: str) -> None:
    """The prompt is kept on the new branch of the run, or beside the present one if its name was taken since."""
    world = World(url, plan({'go': ['end'], 'other': ['end'], 'more': ['more']}))
    async with world.process(dies_after=begins) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go', branch='draft')
    async with world.process(dies_after=begins) as agent:
        await (await agent.load(root.id)).advance('other', branch='idea')
    async with world.process() as agent:
        root = await agent.load(root.id)
        await root.advance('more', branch='draft')
        assert await agent.finish_crashed(root) is root
        turns = await agent.store.versions(VersionFilter(conversation_id=root.conversation_id, kinds=['turn']))
        prompts = {turn.branch: prompts_of(await (await agent.load(turn.id)).messages()) for turn in turns}
        assert prompts == {'main': ['go'], 'idea': ['other'], 'draft': ['more']}
        assert await agent.recover() == []


async def test_finish_crashed_ignores_live_processes_and_other_versions(url: str) -> None:
    world = World(url, plan({'go': [tool_call('look', key='a'), 'end'], 'pay': [tool_call('pay', key='b'), 'end']}))
    async with world.process(dies_after=keeps) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go')
    async with world.process() as agent:
        root = await agent.load(root.id)
        assert await agent.finish_crashed(root) is root
        world.may_pay.clear()
        paying = asyncio.create_task(root.advance('pay'))
        step = root
        while not paying.done() and not await is_paying(agent, step):
            await asyncio.sleep(0)
            step = await tip_of(agent)
        assert await agent.finish_crashed(step) is step
        world.may_pay.set()
        assert (await paying).output == 'end'
        assert await agent.recover() == [], 'the conversation has moved on'
        (suspended,) = await agent.suspended()
        (recovered,) = await agent.recover(suspended.id)
        assert recovered.output == 'end'


async def is_paying(agent: VersionedAgent[Any, Any], step: AgentVersion[Any, Any]) -> bool:
    return any(each.tool_name == 'pay' for each in await agent.store.calls([step.run_id or '']))


async def test_finish_crashed_ends_the_runs_of_subagents(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [tool_call('task', subagent='child', description='do'), 'end'],
        'do': [tool_call('send', key='a'), tool_call('look', key='b'), 'did'],
    }
    world = World(url, plan(answers))
    async with world.process(dies_after=nth(keeps_child, 2)) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (step,) = await agent.list(steps=True, limit=1)
        closed = await agent.finish_crashed(step)
        assert closed.state == 'interrupted'
        assert await agent.store.runs(states=['running']) == []
        assert parts_of_returns(await closed.messages()) == []


async def test_late_resume_does_not_block_the_recovery_of_the_faster_one(url: str) -> None:
    """Of two processes that resume a version at once, the refused run has changed nothing: if the other crashes,
    `recover` resumes its run."""
    world = World(url, plan({'go': [tool_call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
    async with world.process(dies_after=nth(begins, 2)) as agent:
        pause = await (await agent.create(backend=StateBackend())).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    async with world.process() as agent:
        (crashed,) = await agent.store.runs(states=['running'])
        options = json.dumps({**json.loads(crashed.options), 'after': [crashed.id]})
        late = crashed._replace(id=new_id(), options=options)
        await agent.store.commit(Commit(runs=[late], ends=[RunEnd(run_id=late.id, state='failed')]))
        (version,) = await agent.recover()
        assert version.output == 'end'
    assert world.ran == ['send a']


@pytest.mark.parametrize('edit', [None, 'edited'])
async def test_approved_write_is_repeated_without_another_approval(url: str, tmp_path: Path, edit: str | None) -> None:
    """The lost write is undone, so that the approval applies to the file that was shown; not if a person changed it."""
    write = tool_call('write_file', path='/a.txt', content='a')
    world = World(url, plan({'go': [write, 'end']}), options={'interrupt_on': {'write_file': True}})
    async with world.process(dies_before=ends('write_file')) as agent:
        pause = await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    assert (tmp_path / 'a.txt').read_text() == 'a'
    if edit is not None:
        (tmp_path / 'a.txt').write_text(edit)
    async with world.process() as agent:
        (suspended,) = await agent.suspended()
        backend, deps = LocalBackend(tmp_path), DeepAgentDeps()
        stream = await agent.recover_stream(suspended.id, deps=deps, backend=backend)
        assert stream is not None
        _ = [text async for text in stream]
        assert stream.backend is backend
        assert stream.version.state == ('complete' if edit is None else 'awaiting_approval')
    assert (tmp_path / 'a.txt').read_text() == (edit or 'a')


async def test_rest_of_a_named_run_can_be_streamed(url: str) -> None:
    world = World(url, plan({'go': [tool_call('send', key='a'), 'end']}))
    async with world.process(dies_after=ends('send')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent, world.process() as other:
        (suspended,) = await agent.suspended()
        stream = await agent.recover_stream(suspended.id)
        assert stream is not None
        assert await other.recover_stream(suspended.id) is None
        assert ''.join([text async for text in stream]) == 'end'
        assert (stream.version.output, world.ran) == ('end', ['send a'])
        assert await agent.recover_stream(suspended.id) is None
        assert await agent.recover_stream(new_id()) is None


async def test_streamed_rest_can_be_cancelled(url: str) -> None:
    world = World(url, plan({'go': [tool_call('look', key='a'), tool_call('pay', key='a'), 'end']}))
    async with world.process(dies_after=keeps) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (suspended,) = await agent.suspended()
        token = CancellationToken()
        stream = await agent.recover_stream(suspended.id, cancellation_token=token)
        assert stream is not None
        token.cancel()
        with pytest.raises(RunCancelled):
            _ = [text async for text in stream]
        assert await agent.suspended() == []


async def test_streamed_rest_that_does_not_begin_leaves_the_run_suspended(url: str) -> None:
    world = World(url, plan({'go': [tool_call('send', key='a'), 'end']}))
    async with world.process(dies_after=ends('send')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (suspended,) = await agent.suspended()
        stream = await agent.recover_stream(suspended.id)
        assert stream is not None
        fails = cast('MortalStore', agent.store)
        fails.fails_at = begins
        with pytest.raises(StoreUnavailableError):
            _ = [text async for text in stream]
        assert stream.is_suspended
        fails.fails_at = None
        assert [version.output for version in await agent.recover()] == ['end']


async def test_streamed_rest_whose_answers_another_run_has_claimed_is_ended(url: str) -> None:
    world = World(url, plan({'go': [tool_call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
    async with world.process(dies_after=nth(begins, 2)) as agent:
        pause = await (await agent.create(backend=StateBackend())).advance('go')
        await pause.answer({pause.pending[0].id: Approve()}, by='ann')
        await pause.resume()
    async with world.process() as agent:
        (suspended,) = await agent.suspended()
        (version,) = await agent.list(limit=1)
        assert (await version.resume()).output == 'end'
        assert await agent.recover_stream(suspended.id) is None
        assert await agent.suspended() == []
    assert world.ran == ['send a']
