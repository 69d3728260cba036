"""The inbox: pending calls of all agents, which are answered once."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_deep import ApprovalInbox, Approve, DeepAgentDeps, Deny, Respond
from pydantic_deep.approvals import ApprovalRule, InvalidDecisionError, UnknownApprovalError
from pydantic_deep.store import ApprovalAnsweredError, ApprovalNotFoundError
from pydantic_deep.testing import call
from tests.versions.conftest import MakeAgent, SpyStore
from tests.versions.pauses.conftest import ASK, outcomes, pause, team, write

pytestmark = pytest.mark.anyio


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
