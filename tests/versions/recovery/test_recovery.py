"""Recovery of crashed runs: completed calls are not repeated, and calls that may have run need approval.

A crash is simulated by a store that commits nothing from some moment on and is then closed. Real kills are tested in
`test_kill`.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import UsageLimits

from pydantic_deep import Approve, DeepAgentDeps, Deny, Edit, LocalBackend, StateBackend, create_deep_agent
from pydantic_deep.store import (
    ApprovalAnsweredError,
    CallRecord,
    Commit,
    Committed,
    RunEnd,
    RunTakenOverError,
    SqlStore,
    StoreUnavailableError,
    VersionFilter,
    new_id,
    open_engine,
)
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel
from pydantic_deep.versions import AgentVersion, ApprovalInbox, VersionedAgent

pytestmark = pytest.mark.anyio

When = Callable[[Commit], bool]

MAY_HAVE_RUN = 'This call may have run before the process died.'


class MortalStore(SqlStore):
    """Simulates a crash: from one commit on, nothing is stored."""

    dies_before: When | None = None
    dies_after: When | None = None
    is_dead = False
    fails_at: When | None = None
    """Commits to refuse while the process is alive."""
    unread_after: When | None = None
    """The commit after which reading calls fails once."""
    is_unread = False

    async def calls(self, run_ids: Sequence[str]) -> list[CallRecord]:
        if self.is_unread:
            self.is_unread, self.unread_after = False, None
            raise StoreUnavailableError('The disk failed.')
        return await super().calls(run_ids)

    async def commit(self, commit: Commit) -> Committed:
        if self.fails_at is not None and self.fails_at(commit):
            raise StoreUnavailableError('The disk is full.')
        if self.dies_before is not None and self.dies_before(commit):
            self.is_dead = True
        if self.is_dead:
            raise StoreUnavailableError('The process is dead.')
        committed = await super().commit(commit)
        self.is_unread = self.unread_after is not None and self.unread_after(commit)
        if self.dies_after is not None and self.dies_after(commit):
            self.is_dead = True
            raise StoreUnavailableError('The process is dead.')
        return committed


@dataclass
class World:
    """State outside of all processes: the store, the effects of tools, and the requests to the model."""

    url: str
    script: Callable[[str, int], Answer]
    """Answers by the last prompt and the number of responses since."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    subagents: Sequence[Subagent] = ()
    ran: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])
    may_pay: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_pay.set()

    def model(self) -> ScriptedModel:
        def then(messages: list[ModelMessage], info: AgentInfo) -> Answer:
            said, count = '', 0
            for message in messages:
                parts = message.parts if isinstance(message, ModelRequest) else ()
                count += not isinstance(message, ModelRequest)
                for part in parts:
                    if isinstance(part, UserPromptPart):
                        said, count = str(part.content), 0
            self.asked.append(f'{said} {count}')
            return self.script(said, count)

        return ScriptedModel(then=then)

    @cached_property
    def tools(self) -> FunctionToolset[Any]:
        toolset = FunctionToolset[Any]()

        # None of them runs in a thread, which a crash might hit before it starts.
        @toolset.tool_plain(metadata={'effect': 'read'})
        async def look(key: str) -> str:
            """Look."""
            self.ran.append(f'look {key}')
            return f'seen {key}'

        @toolset.tool_plain
        async def long() -> str:
            """Return much."""
            return 'x' * 100_000

        @toolset.tool_plain
        async def measure() -> list[float]:
            """Return the numbers that JSON cannot represent."""
            return [math.nan, -math.inf]

        @toolset.tool_plain
        async def send(key: str) -> str:
            """Send."""
            self.ran.append(f'send {key}')
            return f'sent {key}'

        @toolset.tool_plain
        async def pay(key: str) -> str:
            """Pay."""
            await self.may_pay.wait()
            self.ran.append(f'pay {key}')
            return f'paid {key}'

        @toolset.tool(metadata={'effect': 'write'})
        async def draft(ctx: RunContext[DeepAgentDeps]) -> str:
            """Draft."""
            await ctx.deps.backend.write_bytes('/draft.txt', b'half')
            await self.may_pay.wait()
            return 'drafted'

        @toolset.tool
        async def make(ctx: RunContext[DeepAgentDeps], key: str) -> str:
            """Write a file without a declared effect, like a third-party tool."""
            self.ran.append(f'make {key}')
            await ctx.deps.backend.write_bytes(f'/{key}', key.encode())
            return f'made {key}'

        return toolset

    def build(self) -> Agent[Any, Any]:
        """Return the agent as each process builds it."""
        child = Subagent('child', 'Helps.', toolsets=[self.tools])
        fork = Subagent('fork', 'Helps apart.', toolsets=[self.tools], isolation='fork')
        above = Subagent(
            'above', 'Has others.', toolsets=[self.tools], isolation='fork', subagents=[child, fork], max_depth=1
        )
        return create_deep_agent(
            self.model(), toolsets=[self.tools], subagents=[child, fork, above], name='agent', **self.options
        )

    def agent(self, store: SqlStore) -> VersionedAgent[Any, Any]:
        return VersionedAgent(self.build(), store, make_deps=lambda: DeepAgentDeps(max_depth=2))

    @asynccontextmanager
    async def process(
        self, *, dies_before: When | None = None, dies_after: When | None = None, fails_at: When | None = None
    ) -> AsyncGenerator[VersionedAgent[Any, Any]]:
        """Open the store like a process, and simulate its crash at the end."""
        async with MortalStore(await open_engine(self.url)) as store:
            store.dies_before, store.dies_after, store.fails_at = dies_before, dies_after, fails_at
            try:
                yield self.agent(store)
            except StoreUnavailableError:
                assert store.is_dead


def call(tool: str, *, id: str | None = None, **args: object) -> ToolCallPart:
    return ToolCallPart(tool, args, tool_call_id=id or f'{tool} {" ".join(map(str, args.values()))}')


def starts(tool: str) -> When:
    return lambda commit: any(each.tool_name == tool and each.status == 'started' for each in commit.calls)


def ends(tool: str) -> When:
    return lambda commit: any(each.tool_name == tool and each.status == 'done' for each in commit.calls)


def begins(commit: Commit) -> bool:
    return bool(commit.runs)


def keeps(commit: Commit) -> bool:
    return any(version.kind == 'step' for version in commit.versions)


def keeps_child(commit: Commit) -> bool:
    return any(version.agent_name == 'child' for version in commit.versions)


def nth(when: When, count: int) -> When:
    """Return a predicate for the nth matching commit."""
    seen: list[Commit] = []

    def is_it(commit: Commit) -> bool:
        if when(commit):
            seen.append(commit)
        return len(seen) == count and commit is seen[-1]

    return is_it


def parts_of_returns(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def returns(messages: Sequence[ModelMessage]) -> list[str]:
    return [str(part.content) for part in parts_of_returns(messages)]


@pytest.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str]:
    """A store that outlives each process because it is held open."""
    url = f'memory:{tmp_path.name}'
    async with SqlStore(await open_engine(url)):
        yield url


def plan(answers: dict[str, list[Answer]]) -> Callable[[str, int], Answer]:
    return lambda said, count: answers[said][count]


async def test_crash_before_the_first_response_preserves_the_prompt(url: str) -> None:
    world = World(url, plan({'go': ['end']}))
    async with world.process(dies_after=begins) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go')
    assert world.asked == []
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert [part.content for part in (await version.messages())[0].parts if isinstance(part, UserPromptPart)] == [
            'go'
        ]
        assert [each.kind for each in await version.lineage()] == ['root', 'turn']
        assert await agent.recover() == []


async def test_completed_calls_are_kept_reads_rerun_and_others_need_approval(url: str) -> None:
    world = World(url, plan({'go': [[call('look', key='b'), call('send', key='a'), call('pay', key='c')], 'end']}))
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
    answers: dict[str, list[Answer]] = {'go': [call('look', key='a'), call('send', key='b'), 'end']}
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


async def test_completed_calls_of_a_subagent_are_replayed_without_new_requests(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [call('task', subagent='child', description='do'), 'end'],
        'do': [call('send', key='a'), call('send', key='b'), 'did'],
    }
    world = World(url, plan(answers))
    async with world.process(dies_after=nth(ends('send'), 2)) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
    assert world.ran == ['send a', 'send b']
    assert world.asked == ['go 0', 'do 0', 'do 1', 'do 2', 'go 1']


async def test_nan_and_infinity_survive_recovery(url: str) -> None:
    world = World(url, plan({'go': [call('measure'), 'end']}))
    async with world.process(dies_after=ends('measure')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert returns(await version.messages()) == ['[nan, -inf]']


async def test_answers_are_used_once_if_their_run_crashes_before_it_starts(url: str) -> None:
    world = World(url, plan({'go': [call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
    async with world.process(dies_after=nth(begins, 2)) as agent:
        pause = await (await agent.create(backend=StateBackend())).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    assert world.ran == []
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert await ApprovalInbox(agent.store).list() == []
    assert world.ran == ['send a']


async def test_recovered_turn_after_approvals_replays(url: str) -> None:
    world = World(url, plan({'go': [call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
    async with world.process(dies_after=ends('send')) as agent:
        pause = await (await agent.create(backend=StateBackend())).advance('go')
        await pause.resume({pause.pending[0].id: Approve()})
    async with world.process() as agent:
        (version,) = await agent.recover()
        replay = await version.replay()
        assert (replay.difference, replay.requests, replay.output) == (None, 1, 'end')
    assert world.ran == ['send a']


async def test_edited_call_that_may_have_run_needs_approval_with_its_new_arguments(url: str) -> None:
    world = World(url, plan({'go': [call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
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


async def test_crashed_recovery_is_recovered_without_repeating_calls(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [call('task', subagent='child', description='do'), 'end'],
        'do': [call('send', key='a'), call('send', key='b'), call('send', key='c'), 'did'],
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


async def test_crash_between_claiming_and_resuming_leaves_the_run_recoverable(url: str) -> None:
    world = World(url, plan({'go': ['end']}))
    async with world.process(dies_after=begins) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process(dies_before=begins) as agent:
        assert await agent.recover() == []
    async with world.process() as agent:
        assert [version.output for version in await agent.recover()] == ['end']


async def test_concurrent_recoveries_take_each_run_once(url: str) -> None:
    world = World(url, plan({f'go {number}': [call('send', key=str(number)), 'end'] for number in range(5)}))
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

    world = World(url, plan({'go': [call('send', key='a'), 'end']}))
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
            return call('send', key='late')

        super().__init__(then=then)


async def test_completed_writes_to_files_in_memory_are_restored(url: str) -> None:
    write = call('write_file', path='/a.txt', content='a')
    answers: dict[str, list[Answer]] = {
        'go': [[write, call('task', subagent='child', description='do')], call('read_file', path='/a.txt'), 'end'],
        'do': [call('write_file', path='/b.txt', content='b'), call('send', key='b'), 'did'],
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
    edit = call('edit_file', path='/a.txt', old_string='one', new_string='two')
    world = World(
        url, plan({'go': [call('write_file', path='/a.txt', content='one'), [edit, call('pay', key='a')], 'end']})
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
    edit = call('edit_file', path='/a.txt', old_string='one', new_string='two')
    world = World(url, plan({'go': [call('write_file', path='/a.txt', content='one'), edit, 'end']}))
    async with world.process(dies_before=nth(lambda commit: bool(commit.versions), 4)) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert await (await version.files()).read_bytes('/a.txt') == b'two'
        assert [part.outcome for part in parts_of_returns(await version.messages())] == ['success'] * 2


async def test_call_that_may_have_run_and_would_fail_now_fails_without_approval(url: str, tmp_path: Path) -> None:
    """A call of a crashed process whose preview shows that it would fail is not put before a person but fails at once.
    An edit whose text is already replaced is such a call."""
    (tmp_path / 'work').mkdir()
    backend = LocalBackend(tmp_path / 'work')
    await backend.write_bytes('/a.txt', b'one')
    edit = call('edit_file', path='/a.txt', old_string='one', new_string='two')
    world = World(url, plan({'go': [edit, 'end']}))
    async with world.process(dies_before=ends('edit_file')) as agent:
        await (await agent.create(backend=backend)).advance('go')
    assert await backend.read_bytes('/a.txt') == b'two'
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert (version.output, version.pending) == ('end', [])
        [returned] = parts_of_returns(await version.messages())
        assert returned.outcome == 'failed'
        assert str(returned.content).startswith(f'{MAY_HAVE_RUN} It was not run again, because it would fail:')
    assert await backend.read_bytes('/a.txt') == b'two'


async def test_stored_change_of_an_unfinished_call_needs_approval(url: str) -> None:
    answers: dict[str, list[Answer]] = {'go': [[call('draft'), call('send', key='a')], 'end']}
    world = World(url, plan(answers))
    world.may_pay.clear()
    async with world.process(dies_after=ends('send')) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert [each.tool for each in version.pending] == ['draft']
        assert await (await version.files()).read_bytes('/draft.txt') == b'half'
    assert world.ran == ['send a']


async def test_stored_file_changes_of_a_subagent_are_restored_with_their_calls(url: str) -> None:
    edit = call('edit_file', path='/a.txt', old_string='one', new_string='two')
    answers: dict[str, list[Answer]] = {
        'go': [
            call('write_file', path='/a.txt', content='one'),
            [edit, call('task', subagent='child', description='do')],
            'end',
        ],
        'do': [call('edit_file', path='/a.txt', old_string='two', new_string='three'), call('look', key='b'), 'did'],
    }
    world = World(url, plan(answers))

    async with world.process(dies_after=nth(keeps_child, 3)) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert await (await version.files()).read_bytes('/a.txt') == b'three'
        assert [part.outcome for part in parts_of_returns(await version.messages())] == ['success'] * 3


async def test_recovered_run_has_its_original_limits(url: str) -> None:
    world = World(url, plan({'go': [call('look', key='a'), call('look', key='b'), 'end']}))
    steps = nth(lambda commit: bool(commit.versions), 2)
    async with world.process(dies_after=steps) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go', usage_limits=UsageLimits(request_limit=2, cost_limit=Decimal('0.5')))
    async with world.process() as agent:
        assert await agent.recover() == []
        (run,) = await agent.store.runs(conversation_id=root.conversation_id, states=['failed'])
        assert 'request_limit of 2' in str(run.error)


@pytest.mark.parametrize('where', ['memory', 'directory'])
@pytest.mark.parametrize('is_kept', [True, False])
async def test_todos_are_restored_with_their_call(url: str, tmp_path: Path, where: str, is_kept: bool) -> None:
    todos = [{'content': 'walk', 'status': 'pending'}]
    world = World(url, plan({'go': [call('write_todos', todos=todos), 'end']}))
    dies: dict[str, When] = {'dies_after' if is_kept else 'dies_before': ends('write_todos')}
    async with world.process(**dies) as agent:
        backend = StateBackend() if where == 'memory' else LocalBackend(tmp_path)
        await (await agent.create(backend=backend)).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        if where == 'directory' and not is_kept:  # the state of a directory is unknown
            (pending,) = version.pending
            version = await version.resume({pending.id: Approve()})
        assert version.output == 'end'
        assert [todo.content for todo in version.todos] == ['walk']


async def test_long_result_can_be_read_after_a_crash(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [call('long', id='long'), call('read_file', path='/offload/long', offset=0, limit=1), 'end']
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
        'go': [call('task', subagent='child', description='do'), 'end'],
        'do': [
            [call('write_todos', todos=todos), call('long', id='long')],
            call('look', key='a'),
            call('look', key='b'),
            call('read_file', path='/offload/long', offset=0, limit=1),
            'did',
        ],
    }
    world = World(url, plan(answers))
    both_end = nth(lambda commit: ends('write_todos')(commit) or ends('long')(commit), 2)
    async with world.process(dies_after=nth(keeps_child, 3) if is_kept else both_end) as agent:
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


async def test_directory_has_the_files_of_the_recovered_version(url: str, tmp_path: Path) -> None:
    write = call('write_file', path='/a.txt', content='a')
    world = World(url, plan({'go': [write, call('write_file', path='/b.txt', content='b'), 'end']}))
    async with world.process(dies_after=nth(ends('write_file'), 2)) as agent:
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
    world = World(url, plan({'go': [call('write_file', path='/a.txt', content='a'), 'end']}))
    async with world.process(dies_after=begins) as agent:
        root = await agent.create(backend=LocalBackend(tmp_path))
        (tmp_path / 'mine.txt').write_text('edited by hand')
        await root.advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert sorted(await version.file_tree()) == ['/a.txt', '/mine.txt']
        assert (tmp_path / 'a.txt').read_text() == 'a', 'the turn worked in the directory, not in a view'


async def test_subagent_in_a_fork_writes_its_files_again(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [call('task', subagent='fork', description='do'), 'end'],
        'do': [call('write_file', path='/x.txt', content='x'), call('send', key='a'), 'did'],
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
            'go': [call('task', subagent='fork', description='do'), 'end'],
            'do': [[call('make', key='m'), call('write_file', path='/x', content='x')], call('send', key='a'), 'did'],
        },
        ends('send'), ['/m', '/x'], ['make m', 'send a'],
    ),
    'after a fork below': (
        {
            'go': [call('task', subagent='above', description='do'), 'end'],
            'do': [
                call('write_file', path='/x', content='x'),
                call('task', subagent='fork', description='below'), call('send', key='a'), 'did',
            ],
            'below': [call('make', key='m'), 'did'],
        },
        ends('send'), ['/m', '/x'], ['make m', 'send a'],
    ),
    'in a fork below': (
        {
            'go': [call('task', subagent='above', description='do'), 'end'],
            'do': [call('make', key='n'), call('task', subagent='fork', description='below'), 'did'],
            'below': [call('make', key='m'), call('send', key='a'), 'did'],
        },
        ends('send'), ['/m', '/n'], ['make n', 'make m', 'send a'],
    ),
    'in a subagent that shares it': (
        {
            'go': [call('task', subagent='above', description='do'), 'end'],
            'do': [call('task', subagent='child', description='below'), 'did'],
            'below': [call('make', key='m'), call('send', key='a'), 'did'],
        },
        ends('send'), ['/m'], ['make m', 'send a'],
    ),
    'before it has done anything': (
        {
            'go': [call('task', subagent='fork', description='do'), 'end'],
            'do': [call('make', key='m'), 'did'],
        },
        lambda commit: bool(commit.delegations), ['/m'], ['make m'],
    ),
}  # fmt: skip


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
        'go': [call('task', subagent='above', description='do'), 'end'],
        'do': [call('make', key='n'), call('task', subagent='fork', description='below'), 'did'],
        'below': [call('make', key='m'), call('write_file', path='/x', content='x'), 'did'],
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
            [call('task', subagent='fork', description='do'), call('task', subagent='child', description='look')],
            'end',
        ],
        'do': [call('make', key='m'), call('write_file', path='/x', content='x'), 'did'],
        'look': [call('look', key='a'), call('look', key='b'), 'saw'],
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
        return [call('task', subagent='child', description='do'), 'end'][count]

    async with World(url, script).process() as agent:
        version = await (await agent.create(backend=StateBackend())).advance('go')
        assert version.output == 'end'
        (part,) = parts_of_returns(await version.messages())
        assert part.outcome == 'failed'


async def test_subagent_is_recovered_once_the_store_is_readable_again(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [call('task', subagent='fork', description='do'), 'end'],
        'do': [call('make', key='m'), 'did'],
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


async def test_writes_of_a_resumed_subagent_in_another_fork_are_restored(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [call('task', subagent='above', description='do'), 'end'],
        'do': [call('make', key='n'), call('task', subagent='child', description='below'), 'did'],
        'below': [call('send', key='a'), call('make', key='m'), call('pay', key='b'), 'did'],
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
        'go': [call('task', subagent='fork', description='do'), 'end'],
        'do': [call('write_file', path='m', content='m'), call('send', key='a'), 'did'],
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
        'go': [call('task', subagent='fork', description='do'), 'end'],
        'do': [call('make', key='m'), call('send', key='a'), 'did'],
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


async def test_approved_write_in_a_subagent_is_not_asked_again(url: str) -> None:
    answers: dict[str, list[Answer]] = {
        'go': [call('task', subagent='child', description='do'), 'end'],
        'do': [call('write_file', path='/x.txt', content='x'), call('send', key='after'), 'did'],
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


async def test_run_ends_if_another_run_uses_its_answers(url: str) -> None:
    world = World(url, plan({'go': [call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
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
        'go': [call('task', subagent='child', description='do'), 'end'],
        'do': [call('send', key='a'), 'did'],
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


@pytest.mark.parametrize(('has_run', 'shown'), [(False, '+a'), (True, 'No change')])
async def test_write_that_may_have_run_shows_its_diff_and_is_approved_once(
    url: str, tmp_path: Path, has_run: bool, shown: str
) -> None:
    world = World(url, plan({'go': [call('write_file', path='/a.txt', content='a\n'), 'end']}))
    dies: dict[str, When] = {'dies_before': ends('write_file')} if has_run else {'dies_after': starts('write_file')}
    async with world.process(**dies) as agent:
        await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        (pending,) = version.pending
        assert pending.preview is not None
        assert str(pending.preview).startswith(MAY_HAVE_RUN)
        assert shown in str(pending.preview)
        done = await version.resume({pending.id: Approve()})
        assert done.output == 'end'
        assert sorted(await done.file_tree()) == ['/a.txt']


async def test_turn_with_a_deleted_base_is_recovered_below_its_last_step(url: str) -> None:
    world = World(url, plan({'go': [call('send', key='a'), 'end']}))
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
    answers: dict[str, list[Answer]] = {'go': [call('task', subagent='child', description='do'), 'end'], 'do': ['did']}
    world = World(url, plan(answers))
    async with world.process(dies_after=nth(begins, 2)) as agent:
        await (await agent.create(backend=StateBackend())).advance('go')
    async with world.process() as agent:
        (version,) = await agent.recover()
        assert version.output == 'end'
        assert [thread.state for thread in await version.subagents()] == ['complete']
    assert world.asked == ['go 0', 'do 0', 'go 1']


async def tip_of(agent: VersionedAgent[Any, Any]) -> AgentVersion[Any, Any]:
    """Return the newest version, including steps."""
    return (await agent.list(steps=True, limit=1))[0]


async def test_finish_crashed_preserves_completed_calls_and_prevents_recovery(url: str, tmp_path: Path) -> None:
    todos = [{'content': 'walk', 'status': 'pending'}]
    first = [
        call('write_todos', todos=todos),
        call('write_file', path='/a.txt', content='a'),
        call('edit_file', path='/a.txt', old_string='b', new_string='c'),
        call('long', id='long'),
        call('pay', key='c'),
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


async def test_finish_crashed_before_the_first_response_leaves_nothing(url: str) -> None:
    world = World(url, plan({'go': ['end'], 'more': ['more']}))
    async with world.process(dies_after=begins) as agent:
        root = await agent.create(backend=StateBackend())
        await root.advance('go')
    async with world.process() as agent:
        root = await agent.load(root.id)
        assert await agent.finish_crashed(root) is root
        assert await agent.recover() == []
        assert (await root.advance('more')).output == 'more'


async def test_finish_crashed_ignores_live_processes_and_other_versions(url: str) -> None:
    world = World(url, plan({'go': [call('look', key='a'), 'end'], 'pay': [call('pay', key='b'), 'end']}))
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
        'go': [call('task', subagent='child', description='do'), 'end'],
        'do': [call('send', key='a'), call('look', key='b'), 'did'],
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
    world = World(url, plan({'go': [call('send', key='a'), 'end']}), options={'interrupt_on': {'send': True}})
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
