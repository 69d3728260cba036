"""Turns: the versions stored for turns that succeed, fail, or are cancelled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import RunContext, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.usage import UsageLimits

from pydantic_deep import DeepAgentDeps, LocalBackend, StateBackend, Subagent, create_deep_agent
from pydantic_deep.store import (
    BranchExistsError,
    Commit,
    Committed,
    RunTakenOverError,
    StoreUnavailableError,
    WorkspaceRecord,
    open_store,
)
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import AgentVersion, Recorder, VersionedAgent, workspace_key
from tests.turn.cancellation import Interruption

from .conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    return [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]


async def newest(agent: VersionedAgent[Any, Any]) -> AgentVersion[Any, Any]:
    return (await agent.list(limit=1))[0]


async def test_turn_that_is_cancelled_at_any_await_has_an_end(make_plain: MakeAgent, store: SpyStore) -> None:
    """Its run ends in the store, so that no other process resumes it."""
    agent, interruption = make_plain(then=lambda messages, info: 'done'), Interruption()
    root = await agent.create()
    while interruption.position <= interruption.count:
        interruption.position += 1
        with suppress(asyncio.CancelledError):
            await interruption.run(root.advance('go'))
        assert await store.runs(states=['running']) == [], interruption.position


async def test_arguments_are_parsed_only_when_the_tool_runs(make_plain: MakeAgent):
    """000-20b: The arguments of a tool call are parsed only when the tool runs."""
    broken = '{"a": 1'

    def keep(a: int) -> str:
        return 'ok'

    agent = make_plain(ToolCallPart('keep', broken, tool_call_id='c1'), 'done', tools=[keep])
    turn = await (await agent.create()).advance('go')

    messages = await (await agent.load(turn.id)).messages()
    assert isinstance(messages[1], ModelResponse)
    assert messages[1].tool_calls[0].args == broken
    assert turn.output == 'done'
    assert bool(await turn.replay())


async def test_usage_is_stored_on_messages_and_versions(make: MakeAgent, store: SpyStore):
    """000-21: Every response of a model carries its input and output tokens."""
    agent = make(call('ls'), 'one', 'two')
    first = await (await agent.create()).advance('a')
    second = await first.advance('b')

    responses = [message for message in await second.messages() if isinstance(message, ModelResponse)]
    assert [(r.usage.input_tokens, r.usage.output_tokens) for r in responses] == [(100, 10)] * 3
    assert (first.usage.requests, first.usage.tool_calls, first.usage.input_tokens) == (2, 1, 200)
    assert (second.usage.requests, second.usage.input_tokens, second.usage.output_tokens) == (3, 300, 30)
    run = await store.run(second.run_id or '')
    assert run is not None
    assert json.loads(run.usage) == {'requests': 1, 'input_tokens': 100, 'output_tokens': 10}


async def test_model_failure_leaves_a_version_to_continue_from(make: MakeAgent, store: SpyStore):
    """000-12: Completed steps are not lost when the model fails."""
    agent = make(call('write_todos', todos=[]), call('ls'), RuntimeError('overloaded'), 'fine now')
    root = await agent.create()

    with pytest.raises(RuntimeError, match='overloaded') as caught:
        await root.advance('go')

    failed = await newest(agent)
    assert caught.value.__notes__ == [f'The run is stored as version {failed.id}.']
    assert (failed.kind, failed.state, failed.parent_id, failed.output) == ('turn', 'failed', root.id, None)
    assert [part.tool_name for part in returns(await failed.messages())] == ['write_todos', 'ls']
    run = await store.run(failed.run_id or '')
    assert run is not None
    assert run.state == 'failed'
    assert json.loads(run.error or '') == {
        'type': 'RuntimeError',
        'message': 'overloaded',
        'event': {
            'kind': 'run_failed',
            'message': 'The run failed with RuntimeError. The log of the application has the details.',
            'status': 500,
        },
    }
    after = await failed.advance('again')
    assert (after.state, after.output, after.parent_id) == ('complete', 'fine now', failed.id)
    assert [each.id for each in await after.lineage()] == [root.id, failed.id, after.id]


async def test_model_failure_in_the_first_request_preserves_the_prompt(make: MakeAgent, store: SpyStore):
    agent = make(RuntimeError('overloaded'), 'fine now')
    root = await agent.create()
    with pytest.raises(RuntimeError, match='overloaded'):
        await root.advance('remember this')

    failed = await newest(agent)
    assert failed.state == 'failed'
    after = await failed.advance('again')

    prompts = [part.content for message in await after.messages() for part in message.parts if part.part_kind == 'user-prompt']  # fmt: skip
    assert prompts == ['remember this', 'again']


async def test_cancelled_call_is_answered_as_interrupted_and_never_rerun(make: MakeAgent, store: SpyStore):
    """C12: A call cut off by cancellation is answered as interrupted and does not run later."""
    runs: list[str] = []
    begun, told = asyncio.Event(), asyncio.Event()
    store.after = lambda commit: told.set() if any(entry.status == 'done' for entry in commit.calls) else None

    async def slow() -> str:
        runs.append('slow')
        begun.set()
        await asyncio.Event().wait()
        return 'never'

    async def quick() -> str:
        runs.append('quick')
        return 'quick'

    agent = make([call('quick'), call('slow')], 'after', tools=[slow, quick])
    root = await agent.create()
    task = asyncio.create_task(root.advance('go'))
    await begun.wait()
    await told.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    cut = await newest(agent)
    assert (cut.kind, cut.state) == ('turn', 'interrupted')
    assert await store.runs(states=['running']) == []
    later = await cut.advance('what now?')
    outcomes = {part.tool_name: part.outcome for part in returns(await later.messages())}
    assert outcomes == {'quick': 'success', 'slow': 'interrupted'}
    assert runs == ['quick', 'slow']
    assert await later.messages() == await (await agent.load(later.id)).messages()


async def test_files_written_during_cancellation_are_in_the_version(make: MakeAgent):
    """pydantic-ai cancels the calls of a run only after the run has ended for its capabilities."""
    begun = asyncio.Event()

    async def slow(ctx: RunContext[DeepAgentDeps]) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await ctx.deps.backend.write_bytes('/last.txt', b'words')
        return 'never'

    agent = make([call('slow'), call('ls')], 'after', tools=[slow])
    task = asyncio.create_task((await agent.create(backend=StateBackend())).advance('go'))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    cut = await newest(agent)
    assert cut.state == 'interrupted'
    assert await (await cut.files()).read_bytes('/last.txt') == b'words'


async def test_turn_from_a_step_does_not_run_its_pending_calls(make: MakeAgent):
    """C12: The pending calls of a step are answered as interrupted."""
    runs: list[str] = []

    def once() -> str:
        runs.append('once')
        return 'ok'

    agent = make(call('once'), 'done', 'other', tools=[once])
    turn = await (await agent.create()).advance('go')
    [step] = await turn.steps()

    other = await step.advance('do not')

    assert other.output == 'other'
    assert runs == ['once']
    assert [part.outcome for part in returns(await other.messages())] == ['interrupted']
    assert [part.outcome for part in returns(await turn.messages())] == ['success']


async def test_run_that_cannot_start_leaves_no_running_run(make: MakeAgent, store: SpyStore):
    agent = make('fine')
    root = await agent.create()

    with pytest.raises(UserError):
        await root.advance('go', model='nobody:nothing')

    assert await store.runs(states=['running']) == []
    assert (await root.advance('go')).output == 'fine'


async def test_run_that_was_taken_over_before_it_has_done_anything_is_not_ended(
    make: MakeAgent, store: SpyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was stopped for a while. The rest of the run belongs to another one."""
    agent = make('fine')
    root = await agent.create()
    commit = store.commit

    async def commit_and_lose(new: Commit) -> Committed:
        committed = await commit(new)
        for run in new.runs:
            assert await store.release_run(run.id)
        return committed

    monkeypatch.setattr(store, 'commit', commit_and_lose)
    with pytest.raises(UserError):
        await root.advance('go', model='nobody:nothing')
    assert [run.state for run in await store.runs()] == ['running']


async def test_branch_name_can_be_used_once(make: MakeAgent, store: SpyStore):
    agent = make('one', 'two', 'three')
    root = await agent.create()

    table = await root.advance('a table', branch='table')
    with pytest.raises(BranchExistsError, match="'table'"):
        await root.advance('another', branch='table')

    assert (root.branch, table.branch) == ('main', 'table')
    assert await store.runs(states=['running']) == []
    assert {branch.name for branch in await store.branches(root.conversation_id)} == {'main', 'table'}


@pytest.mark.parametrize('steps', [1, 2])
async def test_turn_is_stored_when_its_branch_name_is_taken_meanwhile(make: MakeAgent, store: SpyStore, steps: int):
    async def be_slower(messages: list[ModelMessage], info: object) -> Answer:
        await (await make('mine', name='other').load(root.id)).advance('mine', branch='table')
        return call('ls') if steps == 2 else 'yours'

    agent = make(be_slower)
    root = await agent.create()

    with pytest.raises(BranchExistsError, match="'table'") as caught:
        await root.advance('yours', branch='table')

    kept = await newest(agent)
    assert f'The run is stored as version {kept.id}.' in caught.value.__notes__
    assert len(await kept.messages()) == 1 + steps  # a pending call is answered as interrupted
    assert kept.branch not in ('main', 'table')
    assert await store.runs(states=['running']) == []


async def test_usage_limits_apply_to_the_whole_conversation(make: MakeAgent):
    agent = make('one', 'two')
    first = await (await agent.create()).advance('a')

    with pytest.raises(Exception, match='request_limit'):
        await first.advance('b', usage_limits=UsageLimits(request_limit=1))

    assert (await newest(agent)).state == 'failed'


async def test_usage_limits_of_the_deps_apply(make: MakeAgent):
    agent = make('one', 'two', make_deps=lambda: DeepAgentDeps(usage_limits=UsageLimits(request_limit=1)))
    first = await (await agent.create()).advance('a')

    with pytest.raises(Exception, match='request_limit'):
        await first.advance('b')


async def test_a_turn_may_have_more_than_fifty_requests(make: MakeAgent):
    agent = make(*[call('ls')] * 51, 'done', loop_detection=False)

    turn = await (await agent.create()).advance('go')

    assert turn.usage.requests == 52


async def test_unserializable_setting_of_one_turn_is_omitted_from_the_run_options(make: MakeAgent, store: SpyStore):
    timeout: Any = object()

    turn = await (await make('done').create()).advance('go', timeout=timeout, seed=7)

    run = await store.run(turn.run_id or '')
    assert run is not None
    assert json.loads(run.options)['model_settings'] == {'seed': 7}


async def test_run_taken_over_stops_without_writing(make: MakeAgent, store: SpyStore):
    agent = make(call('ls'), 'never')
    root = await agent.create()
    store.refuse = lambda commit: RunTakenOverError('it') if commit.versions else None

    with pytest.raises(RunTakenOverError):
        await root.advance('go')

    store.refuse = lambda commit: None
    assert await agent.list(steps=True) == [root]


async def test_delegation_that_cannot_be_stored_does_not_start(make: MakeAgent, store: SpyStore):
    """002-07: the thread is saved before it runs, or does not run"""
    agent = make(call('task', subagent='a', description='x'), 'I see', subagents=[Subagent('a', 'Does a.')])
    root = await agent.create()
    store.refuse = lambda commit: StoreUnavailableError('The disk is full.') if commit.delegations else None

    with pytest.raises(StoreUnavailableError):
        await root.advance('go')

    assert await store.runs(parent_run_id=(await store.orphans())[0].id) == []
    assert [version.kind for version in await agent.list(steps=True)] == ['step', 'root']


async def test_interrupted_call_is_not_a_replay_difference(make: MakeAgent, store: SpyStore):
    begun = asyncio.Event()

    async def slow() -> str:
        begun.set()
        await asyncio.Event().wait()
        return 'never'

    agent = make(call('slow'), tools=[slow])
    root = await agent.create()
    task = asyncio.create_task(root.advance('go'))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (await (await newest(agent)).replay()).difference is None


async def test_run_stopped_before_its_first_request_replays(make: MakeAgent):
    agent = make('one')
    first = await (await agent.create()).advance('a')
    with pytest.raises(Exception, match='request_limit'):
        await first.advance('b', usage_limits=UsageLimits(request_limit=1))

    replay = await (await newest(agent)).replay()

    assert (replay.requests, replay.difference) == (0, None)


async def test_recorder_without_a_run_passes_everything_through(store: SpyStore):
    """Callers of hooks without a run, such as a durable engine that runs tools elsewhere, get their values unchanged."""
    recorder = Recorder(store=store)
    nothing: Any = None

    async def run(args: object) -> str:
        return f'ran {args}'

    part = ToolCallPart('x', {}, tool_call_id='c')
    ctx: Any = SimpleNamespace(messages=[])
    assert await recorder.after_tool_validate(ctx, call=part, tool_def=nothing, args={'a': 1}) == {'a': 1}
    assert await recorder.wrap_tool_execute(ctx, call=part, tool_def=nothing, args={}, handler=run) == 'ran {}'
    handler: Any = run
    assert await recorder.wrap_model_request(ctx, request_context=nothing, handler=handler) == 'ran None'
    assert await recorder.after_node_run(ctx, node=nothing, result=nothing) is nothing
    assert recorder.get_wrapper_model(nothing) is None
    await recorder.record_summary(nothing, nothing, started_at=0, duration_us=0)
    recorder.record_billed_attempts([])
    assert store.commits == []


def cancelling(
    task: asyncio.Task[Any], when: Callable[[Commit], bool] = lambda commit: bool(commit.runs)
) -> Callable[[Commit], None]:
    """Cancel a task as soon as the store has a certain commit, by default the start of a run."""

    def after(commit: Commit) -> None:
        if when(commit):
            task.cancel()

    return after


async def test_turn_cancelled_while_its_start_is_stored_is_ended(make: MakeAgent, store: SpyStore, tmp_path: Path):
    agent = make('done')
    root = await agent.create(backend=LocalBackend(tmp_path))
    task = asyncio.create_task(root.advance('go'))
    store.after = cancelling(task)
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [run.state for run in await store.runs(conversation_id=root.conversation_id)] == ['interrupted']
    store.after = lambda commit: None
    await root.advance('go')
    held = await store.workspace(workspace_key(root.record.backend or ''))
    assert held is not None
    assert held.run_id is None


async def test_recovery_cancelled_at_its_start_can_be_repeated(make: MakeAgent, store: SpyStore):
    agent = make('lost', 'done')
    root = await agent.create(backend=StateBackend())
    store.refuse = lambda commit: StoreUnavailableError('The disk is full.') if commit.ends else None
    with pytest.raises(StoreUnavailableError):
        await root.advance('go')
    store.refuse = lambda commit: None
    task = asyncio.create_task(agent.recover())
    store.after = cancelling(task)
    with pytest.raises(asyncio.CancelledError):
        await task
    store.after = lambda commit: None

    [recovered] = await agent.recover()

    assert recovered.output == 'done'
    assert await store.runs(states=['running']) == []


@pytest.mark.parametrize('kind', ['cancelled', 'refused'])
async def test_run_whose_recovery_fails_is_an_orphan_again(make: MakeAgent, store: SpyStore, kind: str):
    agent = make('lost', 'done')
    root = await agent.create(backend=StateBackend())
    full = StoreUnavailableError('The disk is full.')
    store.refuse = lambda commit: full if commit.ends else None
    with pytest.raises(StoreUnavailableError):
        await root.advance('go')
    [orphan] = await store.orphans()
    store.counting.fails_read = asyncio.CancelledError() if kind == 'cancelled' else full  # of the children of the run
    with pytest.raises((asyncio.CancelledError, StoreUnavailableError)):
        await agent.recover()
    assert [run.id for run in await store.orphans()] == [orphan.id]
    with pytest.raises(StoreUnavailableError):
        await agent.finish_crashed(root)
    assert [run.id for run in await store.orphans()] == [orphan.id]
    store.refuse = lambda commit: None

    [recovered] = await agent.recover()

    assert recovered.output == 'done'


@pytest.mark.parametrize('how', ['advance', 'upload', 'checkout', 'busy'])
async def test_cancelled_claim_of_a_directory_is_released(
    make: MakeAgent, store: SpyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
):
    root = await make('done').create(backend=LocalBackend(tmp_path))
    (tmp_path / 'mine').write_text('mine')
    key = workspace_key(root.record.backend or '')
    claim = store.claim_workspace

    async def cancelling_claim(backend: str, run_id: str, version_id: str | None) -> bool:
        is_claimed = await claim(backend, run_id, version_id)
        task.cancel()
        return is_claimed

    if how == 'busy':
        assert await claim(key, 'somebody', root.id)
    with monkeypatch.context() as patched:  # cancels as soon as the store has the claim
        patched.setattr(store, 'claim_workspace', cancelling_claim)
        calls = {'upload': lambda: root.upload('a', b'a'), 'checkout': root.checkout}
        task = asyncio.ensure_future(calls.get(how, lambda: root.advance('go'))())
        with pytest.raises(asyncio.CancelledError):
            await task

    held = await store.workspace(key)
    assert held is not None
    assert held._replace(identity=None) == WorkspaceRecord(key, root.id, 'somebody' if how == 'busy' else None)
    assert [version.kind for version in await store.versions()] == ['root']


async def test_edit_is_preserved_when_its_turn_is_cancelled(make: MakeAgent, store: SpyStore, tmp_path: Path):
    agent = make('done')
    root = await agent.create(backend=LocalBackend(tmp_path))
    (tmp_path / 'mine').write_text('mine')
    task = asyncio.create_task(root.advance('go'))
    store.after = cancelling(task, lambda commit: bool(commit.versions))
    with pytest.raises(asyncio.CancelledError):
        await task
    store.after = lambda commit: None

    turn = await root.advance('go')

    assert [version.kind for version in await turn.lineage()] == ['root', 'edit', 'turn']
    assert len(await agent.list()) == 3
    assert '/mine' in await turn.file_tree()


async def test_edit_is_reused_when_its_turn_fails_to_start(tmp_path: Path, make: MakeAgent, store: SpyStore):
    agent = make('done', 'done')
    root = await agent.create(backend=LocalBackend(tmp_path))
    (tmp_path / 'mine').write_text('mine')
    store.refuse = lambda commit: (
        StoreUnavailableError('The disk is full.') if commit.runs or not commit.assets else None
    )
    with pytest.raises(StoreUnavailableError):
        await root.advance('go')
    store.refuse = lambda commit: None

    turn = await root.advance('go')

    assert [version.kind for version in await turn.lineage()] == ['root', 'edit', 'turn']
    held = await store.workspace(workspace_key(root.record.backend or ''))
    assert held is not None
    assert (held.version_id, held.run_id) == (turn.id, None)
    await store.delete(turn.id)
    (beside,) = [await root.advance('go')]
    assert [version.kind for version in await beside.lineage()] == ['root', 'turn'], 'it worked in a view'


async def test_call_does_not_run_if_its_turn_is_cancelled_while_its_start_is_stored(
    make: MakeAgent, store: SpyStore, monkeypatch: pytest.MonkeyPatch
):
    ran: list[str] = []
    begun, stored, commit = asyncio.Event(), asyncio.Event(), store.commit

    async def send() -> str:
        ran.append('sent')
        return 'sent'

    async def slow(new: Commit) -> Committed:
        if new.calls:
            begun.set()
            await stored.wait()
        return await commit(new)

    root = await make(call('send'), 'after', tools=[send]).create()
    monkeypatch.setattr(store, 'commit', slow)  # the window is too short to hit reliably
    task = asyncio.create_task(root.advance('go'))
    await begun.wait()
    task.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    stored.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ran == []
    assert await store.runs(states=['running']) == []


async def test_recovery_cancelled_before_it_runs_can_be_repeated(
    make: MakeAgent, store: SpyStore, monkeypatch: pytest.MonkeyPatch
):
    agent = make('lost', 'done')
    root = await agent.create(backend=StateBackend())
    store.refuse = lambda commit: StoreUnavailableError('The disk is full.') if commit.ends else None
    with pytest.raises(StoreUnavailableError):
        await root.advance('go')
    store.refuse = lambda commit: None
    with monkeypatch.context() as patched:  # the window is too short to hit reliably
        patched.setattr(agent.agent, 'run', _cancelled)
        with pytest.raises(asyncio.CancelledError):
            await agent.recover()

    [recovered] = await agent.recover()

    assert recovered.output == 'done'


async def _cancelled(**_: object) -> None:
    raise asyncio.CancelledError


async def test_turn_is_stored_although_its_base_is_deleted_meanwhile(tmp_path: Path) -> None:
    async with open_store('memory:') as store:
        bases: list[str] = []

        async def forget() -> str:
            """Delete."""
            await store.delete(bases[-1])
            return 'deleted'

        steps = (call('forget'), call('write_file', path='/a.txt', content='a'), 'done', 'more')
        agent = VersionedAgent(create_deep_agent(ScriptedModel(*steps), tools=[forget]), store)
        root = await agent.create(backend=LocalBackend(tmp_path))
        bases.append(root.id)
        turn = await root.advance('go')
        assert (turn.output, list(await turn.file_tree())) == ('done', ['/a.txt'])
        lineage = await turn.lineage()
        assert ([version.id for version in lineage], lineage.truncated_at) == ([turn.id], root.id)
        assert await store.runs(states=['running']) == []
        await store.gc(0)
        assert (await turn.advance('more')).output == 'more'
