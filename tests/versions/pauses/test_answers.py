"""Answers are stored first, and one run uses them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import UsageLimitExceeded, UserError
from pydantic_ai.usage import UsageLimits

from pydantic_deep import ApprovalInbox, Approve, Deny, Edit, LocalBackend, Respond, create_deep_agent, open_store
from pydantic_deep.store import ApprovalAnsweredError, StoreUnavailableError
from pydantic_deep.testing import ScriptedModel, Step, call
from pydantic_deep.versions import ApprovalsPendingError, NothingAnsweredError, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore
from tests.versions.pauses.conftest import ASK, Clock, outcomes, pause, team, write

pytestmark = pytest.mark.anyio


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


async def test_error_says_that_a_response_has_answered_the_approval(make: MakeAgent, inbox: ApprovalInbox):
    paused = await pause(make, write('/a.txt'))
    [waiting] = await inbox.list()
    await inbox.answer(waiting.id, Respond('Later.'), by='ann')
    with pytest.raises(ApprovalAnsweredError, match='was answered by ann at') as caught:
        await inbox.answer(waiting.id, Approve(), by='bob')
    assert (caught.value.status, waiting.version_id) == ('responded', paused.id)


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


async def test_resumed_turn_can_be_streamed(make: MakeAgent):
    paused = await pause(make, write('/a.txt'), 'all done')

    stream = paused.resume_stream({paused.pending[0].id: Approve()}, by='ann')
    texts = [text async for text in stream]

    assert ''.join(texts) == 'all done'
    assert (stream.version.parent_id, stream.version.output) == (paused.id, 'all done')
    again = paused.resume_stream({paused.pending[0].id: Approve()})
    with pytest.raises(ApprovalAnsweredError):
        _ = [text async for text in again]


async def test_stored_answers_are_used_later_if_their_run_cannot_start(make: MakeAgent, store: SpyStore) -> None:
    paused = await pause(make, write('/a.txt'), 'done')
    without_model: VersionedAgent[Any, Any] = VersionedAgent(create_deep_agent(interrupt_on=ASK), store)
    with pytest.raises(UserError, match='model'):
        await (await without_model.load(paused.id)).resume({paused.pending[0].id: Approve()}, by='ada')

    after = await paused.resume()

    assert after.output == 'done'
    (approval,) = await store.approvals(status=None, version_id=paused.id)
    assert (approval.decided_by, approval.resumed_by) == ('ada', after.run_id)
