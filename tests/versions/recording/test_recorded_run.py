"""A step is staged after the model's response and stored before its first call runs, so nothing of it is lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import ModelRequestContext, RunContext, ToolDefinition
from pydantic_ai.agent import ModelRequestNode
from pydantic_ai.capabilities import AbstractCapability, ValidatedToolArgs
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage, UsageLimits

from pydantic_deep import Approve, StateBackend, Subagent
from pydantic_deep.store import Commit, StoreUnavailableError, VersionFilter
from pydantic_deep.store.sql._commit_rows import size_of
from pydantic_deep.testing import call
from pydantic_deep.versions import AgentVersion, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def told(commit: Commit) -> list[str]:
    """Name the records of a commit."""
    words = [f'{each.kind} {each.state}' for each in commit.versions]
    return words + [f'{each.status} {each.tool_name}' for each in commit.calls]


def ids_of_responses(commits: list[Commit]) -> set[str]:
    return {call.response_id for commit in commits for call in commit.calls}


async def newest(agent: VersionedAgent[Any, Any]) -> AgentVersion[Any, Any]:
    return await agent.load((await agent.store.versions(VersionFilter(), limit=1))[0].id)


async def asked_for(version: AgentVersion[Any, Any]) -> list[str]:
    """Return the names of the tools that the responses of a version call."""
    messages = await version.messages()
    return [each.tool_name for message in messages if isinstance(message, ModelResponse) for each in message.tool_calls]


@dataclass
class Breaks(AbstractCapability[Any]):
    """Ends the run when the arguments of a tool are validated, or before it runs."""

    tool: str
    on_validate: bool = True

    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        if self.on_validate and call.tool_name == self.tool:
            raise ConnectionError('the hook broke')
        return args

    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        if call.tool_name == self.tool:
            raise ConnectionError('the hook broke')
        return args


def send() -> str:
    """Send."""
    return 'sent'


def pay() -> str:
    """Pay."""
    return 'paid'


async def test_call_is_started_by_the_commit_of_its_step(make: MakeAgent, store: SpyStore):
    root = await make(call('send'), 'done', tools=[send]).create()
    store.commits.clear()

    await root.advance('go')

    assert [told(commit) for commit in store.commits] == [
        [],
        ['step interrupted', 'started send'],
        ['done send'],
        ['turn complete'],
    ]
    [_, step, _, _] = store.commits
    assert step.append is not None
    assert ids_of_responses(store.commits) == {step.append.messages[-1].id}


async def test_step_is_stored_with_the_starts_of_all_parallel_calls_before_any_runs(make: MakeAgent, store: SpyStore):
    had: list[list[str]] = []

    def note() -> str:
        """Note."""
        had.append([version.kind for commit in store.commits for version in commit.versions])
        return 'noted'

    root = await make([call('note') for _ in range(3)], 'done', tools=[note]).create()
    store.commits.clear()

    await root.advance('go')

    assert had == [['step']] * 3
    commits = [told(commit) for commit in store.commits]
    assert commits[1] == ['step interrupted', *['started note'] * 3]
    assert commits[2:-1] == [['done note']] * 3


@pytest.mark.parametrize('tool', ['ls', 'task'])
async def test_read_only_and_delegating_calls_store_the_step_alone(make: MakeAgent, store: SpyStore, tool: str):
    asked = call('ls') if tool == 'ls' else call('task', subagent='child', description='do')
    answers = ['done'] if tool == 'ls' else ['did', 'done']
    root = await make(asked, *answers, subagents=[Subagent('child', 'Helps.')]).create()
    store.commits.clear()

    await root.advance('go')

    assert told(store.commits[1]) == ['step interrupted']


async def test_step_whose_calls_all_fail_validation_is_stored_after_them(make: MakeAgent, store: SpyStore):
    agent = make(call('send', nothing='known'), 'done', tools=[send])
    root = await agent.create()
    store.commits.clear()

    turn = await root.advance('go')

    assert [told(commit) for commit in store.commits] == [[], ['step interrupted'], ['turn complete']]
    assert await asked_for(turn) == ['send']


async def test_response_with_pending_calls_is_stored_with_the_pause(make: MakeAgent, store: SpyStore):
    agent = make(call('send'), 'done', tools=[send], interrupt_on={'send': True})
    root = await agent.create()
    store.commits.clear()

    pause = await root.advance('go')

    assert [told(commit) for commit in store.commits] == [[], ['pause awaiting_approval']]
    assert await asked_for(pause) == ['send']
    done = await pause.resume({pause.pending[0].id: Approve()})
    assert done.output == 'done'
    assert bool(await done.replay())


async def test_structured_answer_is_two_commits(make_plain: MakeAgent, store: SpyStore):
    root = await make_plain(call('final_result', response=4), output_type=int).create()
    store.commits.clear()

    turn = await root.advance('go')

    assert turn.output == 4
    assert [told(commit) for commit in store.commits] == [[], ['turn complete']]
    assert await asked_for(turn) == ['final_result']


@pytest.mark.parametrize('on_validate', [True, False])
async def test_hook_that_ends_the_run_before_a_call_loses_no_response(
    make_plain: MakeAgent, store: SpyStore, on_validate: bool
):
    agent = make_plain(call('send'), tools=[send], capabilities=[Breaks('send', on_validate)])
    root = await agent.create()
    store.commits.clear()

    with pytest.raises(ConnectionError):
        await root.advance('go')

    failed = await newest(agent)
    assert (failed.kind, failed.state) == ('turn', 'failed')
    assert await asked_for(failed) == ['send']
    requests = await store.requests(failed.run_id or '')
    assert len(requests) == 1
    messages = await store.messages((await store.version(failed.id)).branch_id, failed.message_count)
    assert requests[0].response_id == messages[1].id
    assert ids_of_responses(store.commits) <= {messages[1].id}


async def test_hook_that_refuses_a_response_loses_no_earlier_work(make_plain: MakeAgent, store: SpyStore):
    @dataclass
    class Refuses(AbstractCapability[Any]):
        async def after_model_request(
            self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
        ) -> ModelResponse:
            if response.text == 'refused':
                raise ConnectionError('the hook broke')
            return response

    agent = make_plain(call('send'), 'refused', tools=[send], capabilities=[Refuses()])
    root = await agent.create()

    with pytest.raises(ConnectionError):
        await root.advance('go')

    failed = await newest(agent)
    assert (failed.kind, failed.state) == ('turn', 'failed')
    assert await asked_for(failed) == ['send']
    assert [part.part_kind for part in (await failed.messages())[-1].parts] == ['tool-return']


async def test_response_over_the_limit_is_dropped_but_its_usage_is_stored(make_plain: MakeAgent, store: SpyStore):
    too_long = ModelResponse(parts=[TextPart('much')], usage=RequestUsage(output_tokens=5_000))
    agent = make_plain(call('send'), too_long, tools=[send])
    root = await agent.create()

    with pytest.raises(UsageLimitExceeded):
        await root.advance('go', usage_limits=UsageLimits(output_tokens_limit=1_000))

    failed = await newest(agent)
    assert failed.state == 'failed'
    assert await asked_for(failed) == ['send']
    assert [request.output_tokens for request in await store.requests(failed.run_id or '')][1] == 5_000


async def test_run_that_continues_after_a_hook_error_stores_the_staged_step(make_plain: MakeAgent, store: SpyStore):
    """The staged step becomes part of the next one, whichever capability continues the run."""

    @dataclass
    class Saves(AbstractCapability[Any]):
        async def on_node_run_error(self, ctx: RunContext[Any], *, node: Any, error: Exception) -> Any:
            return ModelRequestNode[Any, Any](ModelRequest.user_text_prompt('go on'))

    agent = make_plain(call('send'), call('pay'), 'done', tools=[send, pay], capabilities=[Breaks('send'), Saves()])
    root = await agent.create()
    store.commits.clear()

    turn = await root.advance('go')

    assert await asked_for(turn) == ['send', 'pay']
    assert len(await store.requests(turn.run_id or '')) == 3


async def test_no_call_runs_if_its_step_cannot_be_stored(make: MakeAgent, store: SpyStore):
    ran: list[str] = []

    def note() -> str:
        """Note."""
        ran.append('note')
        return 'noted'

    agent = make([call('note'), call('note')], tools=[note])
    root = await agent.create(backend=StateBackend())
    full = StoreUnavailableError('The disk is full.')
    store.refuse = lambda commit: full if any(version.kind == 'step' for version in commit.versions) else None

    with pytest.raises(StoreUnavailableError, match='The disk is full'):
        await root.advance('go')

    assert ran == []
    assert [run.base_id for run in await store.orphans(10)] == [root.id]
    assert await store.versions(VersionFilter(kinds=['step'])) == []


async def test_cancellation_while_a_step_is_stored_appends_it_once(make: MakeAgent, store: SpyStore):
    def cancel(commit: Commit) -> None:
        """Cancel all tasks that await a commit which succeeds nevertheless."""
        if any(version.kind == 'step' for version in commit.versions):
            for each in asyncio.all_tasks() - {*others, asyncio.current_task()}:
                each.cancel()

    store.refuse = cancel
    agent = make(call('send'), tools=[send])
    root = await agent.create()
    others = asyncio.all_tasks()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(root.advance('go'))

    cut = await newest(agent)
    assert (cut.kind, cut.state) == ('turn', 'interrupted')
    assert [branch.name for branch in await store.branches(cut.conversation_id)] == ['main']
    assert await asked_for(cut) == ['send']


def messages_in(commits: list[Commit]) -> int:
    return sum(len(commit.append.messages) for commit in commits if commit.append is not None)


async def test_chat_turn_is_two_commits(make: MakeAgent, store: SpyStore):
    root = await make('one').create()
    store.commits.clear()

    await root.advance('a')

    assert len(store.commits) == 2
    assert messages_in(store.commits) == 2


@pytest.mark.parametrize('steps', [1, 4])
async def test_each_step_with_a_tool_adds_two_commits(make: MakeAgent, store: SpyStore, steps: int):
    def send() -> str:
        """Send."""
        return 'sent'

    root = await make(*(call('send') for _ in range(steps)), 'done', tools=[send]).create()
    store.commits.clear()

    await root.advance('a')

    assert len(store.commits) == 2 + 2 * steps


@pytest.mark.slow
async def test_turn_costs_the_same_at_any_length_of_history(make: MakeAgent, store: SpyStore):
    """Statements and bytes of the 5th and the 60th turn; ids and numbers have a fixed length except for their digits."""
    agent = make(then=lambda messages, info: 'answer')
    version = await agent.create()
    costs: dict[int, tuple[int, int, int, int]] = {}
    for turn in range(1, 61):
        store.commits.clear()
        store.counting.reads.clear()
        store.counting.writes.clear()
        version = await version.advance(f'prompt {turn:03}')
        size = sum(size_of(commit) for commit in store.commits)
        costs[turn] = (len(store.counting.writes), len(store.counting.reads), messages_in(store.commits), size)

    assert costs[60][:3] == costs[5][:3]
    assert costs[5][2] == 2
    assert costs[60][3] - costs[5][3] <= 16
    assert version.message_count == 120


async def test_fork_writes_only_new_content_at_any_length_of_history(make: MakeAgent, store: SpyStore):
    """000-06c: Every `advance()` writes only new data, regardless of the length of the history."""
    agent = make(then=lambda messages, info: 'answer')
    versions = [await agent.create()]
    for turn in range(30):
        versions.append(await versions[-1].advance(f'prompt {turn:03}'))
    costs: list[tuple[int, int]] = []
    for index in (2, 28):
        store.commits.clear()
        store.counting.writes.clear()
        await versions[index].advance('prompt alt')
        costs.append((len(store.counting.writes), messages_in(store.commits)))

    assert costs[0] == costs[1]
    assert costs[0][1] == 2
