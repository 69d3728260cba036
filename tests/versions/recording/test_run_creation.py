"""Runs of subagents: each delegation is linked, and stored step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapToolExecuteHandler
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from pydantic_deep import Subagent, create_deep_agent
from pydantic_deep.store import Commit, Committed
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from tests.versions.conftest import CountingEngine, MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def returned(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]


def texts(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the prompts and answers of a thread."""
    said = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart | TextPart)]
    return [str(part.content) for part in said]


def told(commit: Commit) -> list[str]:
    """Name the records of a commit."""
    words = [f'conversation {each.agent_name}' for each in commit.conversations]
    words += [f'link {each.intent!r}' for each in commit.delegations]
    words += [f'{each.kind} {each.agent_name} {each.state}' for each in commit.versions]
    words += [f'{each.status} {each.tool_name}' for each in commit.calls]
    return words + [f'end {each.state}' for each in commit.ends]


def researcher(**options: Any) -> Subagent:
    return Subagent('researcher', 'Looks things up.', **options)


async def test_delegation_is_stored_in_eleven_steps(make: MakeAgent, store: SpyStore):
    """002-06 to 002-08, 002-10 to 002-16, 002-18 to 002-20, C14: No step is visible before the previous one."""
    agent = make(
        call('task', subagent='researcher', description='look up'),  # (1)
        call('ls'),
        'found it',
        'done',
        subagents=[researcher()],
        name='main',
    )
    root = await agent.create()
    store.commits.clear()

    turn = await root.advance('go')

    assert [told(commit) for commit in store.commits] == [
        [],  # the run of the parent starts
        ['step main interrupted'],  # (5)(6) the parent is saved before the subagent runs
        ['conversation researcher', "link 'look up'", 'root researcher complete', 'started task'],  # (2)(3)(4)
        ['step researcher interrupted'],  # (7)(8) repeatedly
        ['turn researcher complete', 'done ls', 'end complete'],
        ['done task'],  # (9)(10)
        ['turn main complete', 'end complete'],  # (11)
    ]
    empty = store.commits[2].versions[0]
    assert empty.message_count == 0
    assert turn.output == 'done'


class LateStore(SpyStore):
    """A store that returns from a commit with a delegation only after the turn was cancelled."""

    turn: asyncio.Task[object] | None = None

    async def commit(self, commit: Commit) -> Committed:
        committed = await super().commit(commit)
        if commit.delegations and self.turn is not None:
            self.turn.cancel()
            for _ in range(100):  # as far as the cancellation gets while nothing else runs
                await asyncio.sleep(0)
        return committed


async def test_run_cancelled_while_its_start_is_committed_is_ended():
    async with LateStore(CountingEngine(MemoryEngine.open())) as store:
        script = ScriptedModel(call('task', subagent='researcher', description='look up'), 'never')
        agent = VersionedAgent(create_deep_agent(script, subagents=[researcher()]), store)
        root = await agent.create()
        store.turn = asyncio.create_task(root.advance('go'))

        with pytest.raises(asyncio.CancelledError):
            await store.turn

        [child, parent] = await store.runs()
        assert (child.parent_run_id, child.state, parent.state) == (parent.id, 'interrupted', 'interrupted')


@pytest.mark.parametrize('steps', range(12))
async def test_turn_cancelled_as_its_subagent_starts_leaves_no_running_run(
    make: MakeAgent, store: SpyStore, steps: int
):
    """`steps` of the loop after the start is stored: in one of them, pydantic-ai loses track of its task."""
    begun = asyncio.Event()
    store.after = lambda commit: begun.set() if commit.delegations else None
    root = await make(call('task', subagent='researcher', description='x'), 'found', subagents=[researcher()]).create()
    turn = asyncio.create_task(root.advance('go'))
    await begun.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn

    assert [run.state for run in await store.runs()] == ['interrupted', 'interrupted']


@dataclass
class Leaving(AbstractCapability[Any]):
    """Leaves a delegation as soon as its subagent works."""

    working: asyncio.Event = field(default_factory=asyncio.Event)
    left: list[asyncio.Future[Any]] = field(default_factory=list[asyncio.Future[Any]])

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: Any, args: Any, handler: WrapToolExecuteHandler
    ) -> Any:
        self.left.append(asyncio.ensure_future(handler(args)))
        await self.working.wait()
        return 'left'


async def test_subagent_that_is_left_working_is_ended_with_the_turn(make: MakeAgent, store: SpyStore):
    """The run of a subagent whose call has ended without it is interrupted, and outlives no turn."""
    leaving = Leaving()

    async def hold() -> None:
        leaving.working.set()
        await asyncio.Event().wait()

    agent = make(
        call('task', subagent='researcher', description='x'),
        then=lambda messages, info: 'done' if texts(messages)[0] == 'go' else call('hold'),
        subagents=[researcher(tools=[hold])],
        capabilities=[leaving],
    )
    assert (await (await agent.create()).advance('go')).output == 'done'
    assert [(run.parent_run_id is None, run.state) for run in await store.runs()] == [
        (False, 'interrupted'),
        (True, 'complete'),
    ]
    await asyncio.wait(leaving.left)


@dataclass
class Limited(AbstractCapability[Any]):
    """Stops a delegation, like a time limit."""

    timeout: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: Any, args: Any, handler: WrapToolExecuteHandler
    ) -> Any:
        with suppress(TimeoutError):
            async with self.timeout:
                return await handler(args)
        return 'out of time'


@pytest.mark.parametrize('steps', range(12))
async def test_subagent_stopped_at_its_start_does_not_outlive_its_parent(make: MakeAgent, store: SpyStore, steps: int):
    begun, limited = asyncio.Event(), Limited()
    store.after = lambda commit: begun.set() if commit.delegations else None

    async def hold() -> str:
        await asyncio.Event().wait()
        return 'never'

    agent = make(
        call('task', subagent='researcher', description='x'),
        then=lambda messages, info: 'done' if texts(messages)[0] == 'go' else call('hold'),
        subagents=[researcher(tools=[hold])],
        capabilities=[limited],
    )
    turn = asyncio.create_task((await agent.create()).advance('go'))
    await begun.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    limited.timeout.reschedule(0)

    assert (await turn).output == 'done'

    [child, parent] = await store.runs()
    assert (child.state, parent.state) == ('interrupted', 'complete')


async def test_subagent_cannot_delegate_by_default(make: MakeAgent):
    """C1: A subagent delegates only if allowed."""
    agent = make(call('task', subagent='researcher', description='x'), 'alone', 'done', subagents=[researcher()])

    await (await agent.create()).advance('go')

    model: Any = agent.agent.model
    assert ['task' in request.tool_names for request in model.requests] == [True, False, True]


async def test_child_starts_without_history_and_can_be_advanced(make: MakeAgent):
    """C16: A thread starts empty and can be continued."""
    agent = make(call('task', subagent='researcher', description='look up'), 'found it', 'done', 'more', subagents=[researcher()])  # fmt: skip
    turn = await (await agent.create()).advance('secret of the parent')

    [thread] = await turn.subagents()
    child = await agent.load(thread.version_id or '')
    assert 'secret' not in str(await child.messages())
    later = await child.advance('tell me more')
    assert texts(await later.messages()) == ['look up', 'found it', 'tell me more', 'more']
    assert later.conversation_id == thread.conversation_id


async def test_failed_child_preserves_its_thread(make: MakeAgent):
    """002-02: A failed thread is stored in its last state."""
    agent = make(call('task', subagent='researcher', description='look up'), call('ls'), RuntimeError('overloaded'), 'I see', subagents=[researcher()])  # fmt: skip
    turn = await (await agent.create()).advance('go')

    [thread] = await turn.subagents()
    assert thread.state == 'failed'
    assert texts(await agent.thread(thread.conversation_id)) == ['look up']
    assert [part.tool_name for part in returned(await agent.thread(thread.conversation_id))] == ['ls']
    assert turn.output == 'I see'
    assert [part.outcome for part in returned(await turn.messages())] == ['failed']
    assert bool(await turn.replay())


async def test_todos_of_a_subagent_do_not_leak(make: MakeAgent):
    agent = make(
        call('write_todos', todos=[{'content': 'of the parent', 'status': 'pending'}]),
        call('task', subagent='researcher', description='plan'),
        call('write_todos', todos=[{'content': 'of the child', 'status': 'in_progress'}]),
        'planned',
        'done',
        subagents=[researcher()],
    )
    turn = await (await agent.create()).advance('go')

    [thread] = await turn.subagents()
    child = await agent.load(thread.version_id or '')
    assert [todo.content for todo in turn.todos] == ['of the parent']
    assert [todo.content for todo in child.todos] == ['of the child']


async def test_response_of_a_child_is_stored_before_its_tool_runs(make: MakeAgent, store: SpyStore):
    """002-20: A thread is stored after each step."""
    seen: list[int] = []

    async def peek() -> str:
        versions = await store.versions(limit=1)
        seen.append(versions[0].message_count)
        return 'ok'

    agent = make(call('task', subagent='researcher', description='look'), call('peek'), 'found', 'done', subagents=[researcher(tools=[peek])])  # fmt: skip
    await (await agent.create()).advance('go')

    assert seen == [2]


async def test_answer_without_calls_is_one_message(make: MakeAgent):
    """002-16: Without a delegation there are no events."""
    agent = make('done')
    turn = await (await agent.create()).advance('go')

    assert await agent.events(turn.conversation_id) == []
    assert await turn.subagents() == []
    assert [type(message) for message in await turn.messages()] == [ModelRequest, ModelResponse]
