"""Approvals in the store: listed across agents and processes, answered once, executed once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import DeferredToolRequests, UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart
from pydantic_ai.usage import UsageLimits

from pydantic_deep import (
    ApprovalInbox,
    Approve,
    DeepAgentDeps,
    Deny,
    Edit,
    LocalBackend,
    Respond,
    Subagent,
    create_deep_agent,
    open_store,
)
from pydantic_deep._messages.deferred_metadata import DelegationRequest, dump
from pydantic_deep.approvals import ApprovalRule, InvalidDecisionError, NothingPendingError, UnknownApprovalError
from pydantic_deep.store import ApprovalAnsweredError, ApprovalNotFoundError, StoreUnavailableError
from pydantic_deep.testing import ScriptedModel, Step, call
from pydantic_deep.versions import AgentVersion, ApprovalsPendingError, NothingAnsweredError, VersionedAgent
from pydantic_deep.versions.pauses._pause_histories import load_pause, store_pause
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio

Version = AgentVersion[Any, Any]

ASK = {'write_file': True}


def write(path: str, content: str = 'x') -> Any:
    return call('write_file', path=path, content=content)


async def outcomes(version: Version) -> dict[str, str]:
    messages: list[ModelMessage] = await version.messages()
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    returned = [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]
    return {part.tool_call_id: part.outcome for part in returned}


@pytest.fixture
def inbox(store: SpyStore) -> ApprovalInbox:
    return ApprovalInbox(store)


async def pause(make: MakeAgent, *steps: Step, **options: Any) -> Version:
    agent = make(*steps, interrupt_on=options.pop('interrupt_on', ASK), **options)
    return await (await agent.create()).advance('go')


async def test_pending_turn_is_a_version(make: MakeAgent):
    paused = await pause(make, write('/a.txt'), 'done')

    assert (paused.kind, paused.state, paused.output) == ('pause', 'awaiting_approval', None)
    [pending] = paused.pending
    assert (pending.tool, pending.path) == ('write_file', ())
    assert pending.preview is not None
    assert '/a.txt' in str(pending.preview)


async def test_inbox_lists_pending_calls_of_all_agents(make: MakeAgent, inbox: ApprovalInbox):
    first = await pause(make, write('/a.txt'), name='one')
    second = await pause(make, [write('/b.txt'), write('/c.txt')], name='two')

    items = await inbox.list()

    assert [(item.agent_name, item.arguments['path'], item.version_id) for item in items] == [
        ('one', '/a.txt', first.id),
        ('two', '/b.txt', second.id),
        ('two', '/c.txt', second.id),
    ]
    assert [item.pending_id for item in items] == [p.id for p in (*first.pending, *second.pending)]
    assert [item.agent_name for item in await inbox.list(agent_name='two', limit=1)] == ['two']
    item = await inbox.get(items[0].id[:23])
    assert item == items[0]
    assert (item.status, item.tool, item.path, item.decision, item.conversation_id) == (
        'pending', 'write_file', (), None, first.conversation_id,
    )  # fmt: skip
    assert item.preview == first.pending[0].preview
    assert item.created_at.tzinfo is not None
    assert item.expires_at is None
    with pytest.raises(ApprovalNotFoundError):
        await inbox.get('01234567-nobody')


async def test_answer_is_stored_with_person_and_reason(make: MakeAgent, inbox: ApprovalInbox):
    paused = await pause(make, write('/a.txt'), 'done')
    [item] = await inbox.list()

    answered = await inbox.answer(item.id, Approve(), by='ann', reason='looks right')

    assert (answered.status, answered.decided_by, answered.reason) == ('approved', 'ann', 'looks right')
    assert answered.decision == Approve()
    assert answered.decided_at is not None
    assert answered.decided_at >= answered.created_at
    assert await inbox.list() == []
    assert await inbox.list(status='approved') == [answered]
    done = await paused.resume()
    assert done.output == 'done'
    assert await outcomes(done) == {'call-1': 'success'}


@pytest.mark.parametrize(
    ('decision', 'status', 'outcome'),
    [
        (Approve(), 'approved', 'success'),
        (Deny('not today'), 'denied', 'denied'),
        (Edit({'path': '/b.txt', 'content': 'y'}), 'edited', 'success'),
        (Respond('I did it'), 'responded', 'success'),
    ],
)
async def test_each_kind_of_answer_is_applied(
    make: MakeAgent, inbox: ApprovalInbox, decision: Any, status: str, outcome: str
):
    paused = await pause(make, write('/a.txt'), 'done')
    [item] = await inbox.list()
    await inbox.answer(item.id, decision)

    done = await paused.resume()

    found = await inbox.get(item.id)
    assert (found.status, found.decision) == (status, decision)
    assert await outcomes(done) == {'call-1': outcome}
    tree = await done.file_tree()
    assert ('/a.txt' in tree, '/b.txt' in tree) == (status == 'approved', status == 'edited')
    assert bool(await done.replay())


async def test_second_answer_is_refused_and_names_the_first(make: MakeAgent, inbox: ApprovalInbox):
    await pause(make, write('/a.txt'), 'done')
    [item] = await inbox.list()
    await inbox.answer(item.id, Deny('no'), by='ann')

    with pytest.raises(ApprovalAnsweredError, match='denied by ann') as caught:
        await inbox.answer(item.id, Approve(), by='bob')

    assert (caught.value.id, caught.value.status, caught.value.by) == (item.id, 'denied', 'ann')
    assert (await inbox.get(item.id)).decided_by == 'ann'


async def test_one_of_twenty_concurrent_answers_wins(make: MakeAgent, inbox: ApprovalInbox):
    await pause(make, write('/a.txt'), 'done')
    [item] = await inbox.list()

    answers = [inbox.answer(item.id, Approve(), by=f'person {index}') for index in range(20)]
    results = await asyncio.gather(*answers, return_exceptions=True)

    [winner] = [result for result in results if not isinstance(result, BaseException)]
    losers = [result for result in results if isinstance(result, ApprovalAnsweredError)]
    assert len(losers) == 19
    assert {loser.by for loser in losers} == {winner.decided_by}


async def test_answer_must_be_allowed_and_name_a_pending_call(make: MakeAgent, inbox: ApprovalInbox):
    paused = await pause(
        make, write('/a.txt'), interrupt_on={'write_file': ApprovalRule(decisions=['approve', 'deny'])}
    )
    [item] = await inbox.list()

    with pytest.raises(InvalidDecisionError):
        await inbox.answer(item.id, Respond('never mind'))
    with pytest.raises(InvalidDecisionError):
        await paused.resume({paused.pending[0].id: Respond('never mind')})
    with pytest.raises(UnknownApprovalError):
        await paused.resume({'nobody': Approve()})

    assert (await inbox.get(item.id)).status == 'pending'


async def test_unanswered_calls_stay_pending(make: MakeAgent, inbox: ApprovalInbox):
    paused = await pause(make, [write('/a.txt'), write('/b.txt')], 'done')
    first, second = await inbox.list()

    again = await paused.resume({paused.pending[0].id: Approve()}, by='ann')

    assert (again.kind, again.state, again.parent_id) == ('pause', 'awaiting_approval', paused.id)
    assert [pending.arguments['path'] for pending in again.pending] == ['/b.txt']
    [waiting] = await inbox.list()
    assert (waiting.version_id, waiting.arguments) == (again.id, second.arguments)
    old = await inbox.get(second.id)
    assert old.status == 'superseded'
    with pytest.raises(ApprovalAnsweredError, match=waiting.id):
        await inbox.answer(second.id, Approve())
    done = await again.resume({again.pending[0].id: Deny('no')})
    assert done.output == 'done'
    assert await outcomes(done) == {'call-1': 'success', 'call-2': 'denied'}
    assert (await inbox.get(first.id)).decided_by == 'ann'
    assert [v.id for v in await done.lineage()][1:] == [paused.id, again.id, done.id]


async def test_version_is_resumed_once(make: MakeAgent, inbox: ApprovalInbox, store: SpyStore):
    paused = await pause(make, write('/a.txt'), 'done', 'never')
    answers = {paused.pending[0].id: Approve()}
    done = await paused.resume(answers, by='ann')

    with pytest.raises(ApprovalAnsweredError, match='approved by ann'):
        await paused.resume(answers, by='bob')
    with pytest.raises(ApprovalAnsweredError, match=f'{done.run_id}'):
        await paused.resume()

    assert await paused.children() == [done]
    assert await store.runs(states=['running']) == []


async def test_concurrent_resumes_run_the_call_once(make: MakeAgent, store: SpyStore):
    runs: list[str] = []

    async def pay() -> str:
        runs.append('paid')
        return 'paid'

    paused = await pause(make, call('pay'), *['done'] * 5, tools=[pay], interrupt_on={'pay': True})
    answers = {paused.pending[0].id: Approve()}

    results = await asyncio.gather(*[paused.resume(answers, by=f'p{i}') for i in range(5)], return_exceptions=True)

    assert runs == ['paid']
    assert [type(result).__name__ for result in results].count('AgentVersion') == 1
    assert [type(result).__name__ for result in results].count('ApprovalAnsweredError') == 4
    assert len(await paused.children()) == 1


async def test_resume_without_any_answer_raises(make: MakeAgent, inbox: ApprovalInbox, store: SpyStore):
    paused = await pause(make, write('/a.txt'), 'done')

    with pytest.raises(NothingAnsweredError, match=paused.id):
        await paused.resume()

    assert await store.runs(states=['running']) == []
    assert (await paused.resume({paused.pending[0].id: Approve()})).output == 'done'


async def test_version_without_pending_calls_cannot_be_resumed(make: MakeAgent):
    root = await make('done').create()

    with pytest.raises(NothingPendingError, match='complete'):
        await root.resume()


async def test_pending_version_cannot_be_advanced(make: MakeAgent):
    paused = await pause(make, write('/a.txt'), 'done')

    with pytest.raises(ApprovalsPendingError, match=paused.pending[0].id) as caught:
        await paused.advance('never mind')
    with pytest.raises(ApprovalsPendingError):
        paused.advance_stream('never mind')

    assert caught.value.pending == (paused.pending[0].id,)


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(store: SpyStore) -> Clock:
    clock = Clock()
    store._clock = clock  # pyright: ignore[reportPrivateUsage] - the store of the other fixtures
    return clock


async def test_expired_approval_is_denied(make: MakeAgent, inbox: ApprovalInbox, clock: Clock):
    """The recorder's clock plus the timeout gives the expiry; the store compares it with its own clock."""
    paused = await pause(make, write('/a.txt'), 'done', approval_timeout_seconds=60)
    [item] = await inbox.list(status=None)
    assert item.expires_at is not None
    clock.now = int(item.expires_at.timestamp() * 1e6) - 1
    assert [each.status for each in await inbox.list()] == ['pending']

    clock.now += 2

    assert await inbox.list() == []
    [expired] = await inbox.list(status='expired')
    assert expired.decision == Deny('Nobody answered in time.')
    with pytest.raises(ApprovalAnsweredError, match='expired'):
        await inbox.answer(item.id, Approve())
    done = await paused.resume()
    assert await outcomes(done) == {'call-1': 'denied'}


async def test_calls_that_stay_pending_preserve_their_deadline(make: MakeAgent, inbox: ApprovalInbox):
    paused = await pause(make, [write('/a.txt'), write('/b.txt')], approval_timeout_seconds=60)
    _, before = await inbox.list()

    again = await paused.resume({paused.pending[0].id: Approve()})

    [after] = await inbox.list()
    assert (after.version_id, after.pending_id) == (again.id, before.pending_id)
    assert (after.created_at, after.expires_at) == (before.created_at, before.expires_at)


async def test_call_that_expires_while_others_run_is_denied(make: MakeAgent, inbox: ApprovalInbox, clock: Clock):
    async def pay() -> str:
        clock.now += 10**18
        return 'paid'

    ask = {'pay': True, 'write_file': True}
    paused = await pause(
        make, [call('pay'), write('/b.txt')], 'done', tools=[pay], interrupt_on=ask, approval_timeout_seconds=10**9
    )
    again = await paused.resume({paused.pending[0].id: Approve()})

    assert [(item.tool, item.version_id) for item in await inbox.list(status='expired')] == [('write_file', again.id)]
    done = await again.resume()
    assert await outcomes(done) == {'call-1': 'success', 'call-2': 'denied'}
    for version in (again, done):
        assert (await version.replay()).difference is None


async def test_stored_but_unused_answer_explains_how_to_resume(make: MakeAgent, store: SpyStore):
    paused = await pause(make, write('/a.txt'), 'done')
    store.refuse = lambda commit: StoreUnavailableError('The process is dead.') if commit.runs else None
    with pytest.raises(StoreUnavailableError):
        await paused.resume({paused.pending[0].id: Approve()}, by='ada')
    store.refuse = lambda commit: None

    with pytest.raises(ApprovalAnsweredError, match=r'by ada .* `resume\(\)` without answers uses it') as caught:
        await paused.resume({paused.pending[0].id: Approve()}, by='bob')
    with pytest.raises(ApprovalsPendingError, match=r'`resume` \(without answers, if they are stored already\)'):
        await paused.advance('go on')
    with pytest.raises(ApprovalsPendingError, match=paused.pending[0].id):
        await paused.upload('a.txt', b'')

    assert (caught.value.status, caught.value.by) == ('approved', 'ada')
    assert (await paused.resume()).output == 'done'


async def test_resumed_turn_respects_usage_limits(make: MakeAgent):
    paused = await pause(make, write('/a.txt'), 'done')

    with pytest.raises(UsageLimitExceeded, match='request_limit of 1'):
        await paused.resume({paused.pending[0].id: Approve()}, usage_limits=UsageLimits(request_limit=1))


async def test_clone_of_an_expired_pause_gets_the_same_timeout_again(make: MakeAgent, store: SpyStore):
    paused = await pause(make, write('/a.txt'), 'done', approval_timeout_seconds=0.000001)
    inbox = ApprovalInbox(store)
    assert [item.version_id for item in await inbox.list(status='expired')] == [paused.id]
    late = paused.record._replace(id=paused.id)
    [old] = await store.approvals(status=None, version_id=late.id)
    clone = await paused.clone()
    [new] = await store.approvals(status=None, version_id=clone.id)
    assert old.expires_at is not None
    assert new.expires_at is not None
    assert new.expires_at - new.created_at == old.expires_at - old.created_at
    assert new.created_at > old.created_at


async def test_another_process_resumes_from_the_store_alone(tmp_path: Path):
    url = f'sqlite:///{tmp_path}/agents.db'
    work = tmp_path / 'work'
    work.mkdir()

    def build(*steps: Step) -> Any:
        return create_deep_agent(ScriptedModel(*steps), interrupt_on=ASK)

    async with open_store(url) as store:
        root = await VersionedAgent(build(write('/a.txt', 'hello')), store).create(backend=LocalBackend(work))
        paused = await root.advance('go')
    async with open_store(url) as store:
        [item] = await ApprovalInbox(store).list()
        await ApprovalInbox(store).answer(item.id, Approve(), by='ann')
    async with open_store(url) as store:
        again = await VersionedAgent(build('done'), store).load(paused.id)
        assert [pending.id for pending in again.pending] == [pending.id for pending in paused.pending]
        done = await again.resume()

    assert done.output == 'done'
    assert (work / 'a.txt').read_text() == 'hello'


def team() -> list[Subagent]:
    return [Subagent('lead', 'Leads.', subagents=[Subagent('hand', 'Works.')])]


async def test_approvals_are_surfaced_from_three_levels(make: MakeAgent, inbox: ApprovalInbox, store: SpyStore):
    steps = (
        call('task', subagent='lead', description='lead'),
        call('task', subagent='hand', description='work'),
        [write('/deep.txt'), call('ls')],
    )
    paused = await pause(make, *steps, subagents=team(), make_deps=lambda: DeepAgentDeps(max_depth=2))

    [item] = await inbox.list()
    assert (item.path, item.tool, item.version_id) == (('lead', 'hand'), 'write_file', paused.id)
    assert item.pending_id == paused.pending[0].id
    assert item.pending_id.count('/') == 2
    threads = await paused.subagents()
    assert [t.state for t in (threads[0], threads[0].subagents[0])] == ['awaiting_approval'] * 2

    fresh = make('hand done', 'lead done', 'done', interrupt_on=ASK, subagents=team(), make_deps=lambda: DeepAgentDeps(max_depth=2))  # fmt: skip
    done = await (await fresh.load(paused.id)).resume({item.pending_id: Approve()}, by='ann')

    assert done.output == 'done'
    assert '/deep.txt' in await done.file_tree()
    [thread] = await paused.subagents()
    assert [t.state for t in (thread, thread.subagents[0])] == ['complete'] * 2
    lead = await fresh.thread(thread.conversation_id)
    hand = await fresh.thread(thread.subagents[0].conversation_id)
    assert 'lead done' in str(lead)
    assert 'hand done' in str(hand)
    assert (await inbox.get(item.id)).decided_by == 'ann'
    assert [v.state for v in (await done.lineage())] == ['complete', 'awaiting_approval', 'complete']


async def test_some_calls_of_subagents_can_stay_pending(make: MakeAgent, inbox: ApprovalInbox):
    paused = await pause(
        make, [call('task', subagent='lead', description='a'), write('/top.txt')],
        [write('/one.txt'), write('/two.txt')], 'lead done', 'done', subagents=team(),
    )  # fmt: skip
    by_path = {str(pending.arguments['path']): pending.id for pending in paused.pending}

    again = await paused.resume({by_path['/one.txt']: Approve(), by_path['/top.txt']: Deny('no')})

    assert [pending.arguments['path'] for pending in again.pending] == ['/two.txt']
    assert [item.arguments['path'] for item in await inbox.list()] == ['/two.txt']
    done = await again.resume({again.pending[0].id: Approve()})
    assert done.output == 'done'
    tree = await done.file_tree()
    assert ['/one.txt' in tree, '/two.txt' in tree, '/top.txt' in tree] == [True, True, False]


async def test_clone_of_a_pause_needs_its_own_answers(make: MakeAgent, inbox: ApprovalInbox):
    paused = await pause(make, write('/a.txt'), 'done', 'denied')
    clone = await paused.clone()

    items = await inbox.list()
    assert sorted(item.version_id for item in items) == sorted([paused.id, clone.id])
    assert len({item.id for item in items}) == 2
    done = await paused.resume({paused.pending[0].id: Approve()})
    other = await clone.resume({clone.pending[0].id: Deny('no')})
    assert await outcomes(done) == {'call-1': 'success'}
    assert await outcomes(other) == {'call-1': 'denied'}
    assert '/a.txt' not in await other.file_tree()


async def test_edit_of_a_pause_is_pending_too(make: MakeAgent, inbox: ApprovalInbox):
    paused = await pause(make, write('/a.txt'), 'done')

    edited = await paused.with_metadata({'priority': 'high'})

    assert (edited.state, len(edited.pending)) == ('awaiting_approval', 1)
    assert (await edited.resume({edited.pending[0].id: Approve()})).output == 'done'


async def test_merge_with_a_pause_is_pending_too(make: MakeAgent):
    agent = make('one', [write('/a.txt')], 'done', interrupt_on=ASK)
    first = await (await agent.create()).advance('a')
    paused = await first.advance('b')
    other = await first.with_metadata({'a': 1})

    merged = await paused.merge(other)

    assert (merged.kind, merged.state) == ('merge', 'awaiting_approval')
    assert (await merged.resume({merged.pending[0].id: Approve()})).output == 'done'


async def test_directory_edited_during_a_pause_does_not_ask_again(
    make: MakeAgent, inbox: ApprovalInbox, tmp_path: Path
):
    agent = make([write('/a.txt'), write('/b.txt')], 'done', interrupt_on=ASK)
    paused = await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    (tmp_path / 'notes.txt').write_text('meanwhile')

    again = await paused.resume({paused.pending[0].id: Approve()})

    assert [item.arguments['path'] for item in await inbox.list()] == ['/b.txt']
    done = await again.resume({again.pending[0].id: Approve()})
    assert done.output == 'done'
    assert 'edit' in [version.kind for version in await done.lineage()]
    assert '/notes.txt' in await done.file_tree()
    assert bool(await again.replay())
    assert bool(await done.replay())


async def test_resumed_turn_can_be_streamed(make: MakeAgent):
    paused = await pause(make, write('/a.txt'), 'all done')

    stream = paused.resume_stream({paused.pending[0].id: Approve()}, by='ann')
    texts = [text async for text in stream]

    assert ''.join(texts) == 'all done'
    assert (stream.version.parent_id, stream.version.output) == (paused.id, 'all done')
    again = paused.resume_stream({paused.pending[0].id: Approve()})
    with pytest.raises(ApprovalAnsweredError):
        _ = [text async for text in again]


async def test_pending_delegation_has_a_call_event_and_no_response_event(make: MakeAgent):
    agent = make(call('task', subagent='lead', description='a'), write('/one.txt'), interrupt_on=ASK, subagents=team())
    paused = await (await agent.create()).advance('go')

    assert [event.kind for event in await agent.events(paused.conversation_id)] == ['tool_call']


async def test_pause_of_an_unstored_subagent_contains_its_history(store: SpyStore):
    """A foreign agent may delegate without a recorder; then the pause contains the history itself."""
    child = DelegationRequest(subagent='x', conversation_id='nowhere', messages=['m'], requests=DeferredToolRequests())
    requests = DeferredToolRequests(
        approvals=[ToolCallPart('task', {}, tool_call_id='c')], metadata={'c': dump(child), 'd': {'other': 1}}
    )

    loaded = await load_pause(store, await store_pause(store, requests))

    assert loaded == requests


async def test_pause_contains_a_subagent_history_that_differs_from_its_thread(make: MakeAgent, store: SpyStore):
    paused = await pause(make, call('task', subagent='lead', description='a'), write('/one.txt'), subagents=team())
    [thread] = await paused.subagents()
    child = DelegationRequest(
        subagent='lead', conversation_id=thread.conversation_id, messages=['other'], requests=DeferredToolRequests()
    )
    requests = DeferredToolRequests(approvals=[ToolCallPart('task', {}, tool_call_id='c')], metadata={'c': dump(child)})

    assert await load_pause(store, await store_pause(store, requests)) == requests


async def test_stored_answers_are_used_later_if_their_run_cannot_start(make: MakeAgent, store: SpyStore) -> None:
    paused = await pause(make, write('/a.txt'), 'done')
    without_model: VersionedAgent[Any, Any] = VersionedAgent(create_deep_agent(interrupt_on=ASK), store)
    with pytest.raises(UserError, match='model'):
        await (await without_model.load(paused.id)).resume({paused.pending[0].id: Approve()}, by='ada')

    after = await paused.resume()

    assert after.output == 'done'
    (approval,) = await store.approvals(status=None, version_id=paused.id)
    assert (approval.decided_by, approval.resumed_by) == ('ada', after.run_id)
