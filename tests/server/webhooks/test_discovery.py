"""Events that are found in the store, and the deliveries of their owners."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from pydantic_deep.server import Webhook, Webhooks
from pydantic_deep.server.webhooks import _webhooks
from pydantic_deep.store import Commit, RunTakenOverError, SqlStore, VersionFilter, new_id
from pydantic_deep.versions import AgentVersion
from tests.server.conftest import Client, Gate, MakeClient, Served

from .conftest import Receiver, Rounds, new_rounds, run

pytestmark = pytest.mark.anyio


async def answer(client: Client, decision: str = 'approve') -> dict[str, Any]:
    """Answer the pending approval, wait for the end of the resumed run, and return the approval."""
    [approval] = (await client.get('/api/approvals')).json()['items']
    answers = {approval['pending_id']: {'decision': decision, 'digest': approval['view']['digest']}}
    path = f'/api/conversations/{approval["conversation_id"]}/resume'
    assert (await client.post(path, json={'answers': answers})).is_success
    return approval


async def test_end_of_a_run_is_sent(ada: Client, hook: Webhook, receiver: Receiver, rounds: Rounds):
    """The end of a run is sent once, with its ids, its status and a link to the conversation."""
    ended = await run(ada)
    await rounds()
    await rounds()
    [event] = receiver.events
    assert event['type'] == 'run.ended'
    assert event['timestamp'].endswith('Z')
    assert event['data'] == {
        'run_id': ended['id'],
        'conversation_id': ended['conversation_id'],
        'version_id': ended['version_id'],
        'agent': 'writer',
        'status': 'complete',
        'url': f'https://agents.example/#/c/{ended["conversation_id"]}',
    }


async def test_failed_run_is_sent(ada: Client, hook: Webhook, receiver: Receiver, rounds: Rounds):
    """A run that fails is sent with its status, without the message of its exception."""
    await run(ada, 'broken')
    await rounds()
    [(_, body)] = receiver.requests
    assert receiver.events[0]['data']['status'] == 'failed'
    assert 'defect' not in body


async def test_approval_is_sent_when_it_is_requested_and_answered(
    ada: Client, hook: Webhook, receiver: Receiver, rounds: Rounds
):
    """A pending approval is sent with a link to the page and without arguments; its answer and the end of the resumed run
    follow."""
    await run(ada, 'careful')
    await rounds()
    assert receiver.types == ['approval.requested']
    approval = await answer(ada)
    await rounds()
    assert receiver.types == ['approval.requested', 'approval.answered', 'run.ended']
    requested, *rest = receiver.events
    shared: dict[str, Any] = {
        'approval_id': approval['id'],
        'conversation_id': approval['conversation_id'],
        'version_id': approval['version_id'],
        'agent': 'careful',
        'path': [],
        'tool': 'write_file',
        'expires_at': None,
        'url': f'https://agents.example/#/a/{approval["id"]}',
    }
    assert requested['data'] == shared
    [answered] = [event['data'] for event in rest if event['type'] == 'approval.answered']
    assert answered == shared | {'status': 'approved', 'decided_by': answered['decided_by']}


async def test_denied_approval_is_sent(ada: Client, hook: Webhook, receiver: Receiver, rounds: Rounds):
    """The answer contains how the approval was decided."""
    await run(ada, 'careful')
    await answer(ada, 'deny')
    await rounds()
    await rounds()
    assert sorted(receiver.types) == ['approval.answered', 'approval.requested', 'run.ended']
    assert [event['data']['status'] for event in receiver.events if event['type'] == 'approval.answered'] == ['denied']


async def test_only_chosen_events_are_sent(ada: Client, webhooks: Webhooks, receiver: Receiver, rounds: Rounds):
    """A webhook receives its events only."""
    await webhooks.create(owner='ada', url=receiver.url, events=['approval.answered'])
    await rounds()
    await run(ada, 'careful')
    await answer(ada)
    await rounds()
    await rounds()
    assert receiver.types == ['approval.answered']


async def test_events_of_others_are_not_sent(
    make_client: MakeClient, hook: Webhook, receiver: Receiver, rounds: Rounds
):
    """A webhook receives events of its owner's conversations only."""
    await run(await make_client('run', owner='bob'))
    await rounds()
    assert receiver.events == []


async def test_events_of_other_agents_are_not_sent(ada: Client, webhooks: Webhooks, receiver: Receiver, rounds: Rounds):
    """A webhook that a key of one agent created receives events of this agent only."""
    await webhooks.create(owner='ada', url=receiver.url, agents=['careful'])
    await rounds()
    await run(ada, 'writer')
    await rounds()
    assert receiver.events == []


async def test_what_is_open_at_the_first_webhook_is_tracked(
    ada: Client, webhooks: Webhooks, receiver: Receiver, rounds: Rounds
):
    """An approval that was pending before the first webhook is not requested again, and its answer is sent."""
    await run(ada, 'careful')
    await run(ada, 'writer')
    await webhooks.create(owner='ada', url=receiver.url, events=['approval.requested', 'approval.answered'])
    await rounds()
    assert receiver.events == []
    await answer(ada)
    await rounds()
    assert receiver.types == ['approval.answered']


async def test_approval_that_is_pending_again_is_requested_under_its_new_id(
    ada: Client, hook: Webhook, receiver: Receiver, rounds: Rounds, store: SqlStore
):
    """An approval that a later version replaces is requested with the id to answer, and the old one is not answered."""
    await run(ada, 'careful')
    [old] = await store.approvals()
    await rounds()
    new = old._replace(id=new_id())
    await store.commit(Commit(approvals=[new], supersedes={old.id: new.id}))
    await rounds()
    assert receiver.types == ['approval.requested']


async def test_deleted_conversations_are_forgotten(
    ada: Client, hook: Webhook, receiver: Receiver, rounds: Rounds, webhooks: Webhooks
):
    """A run of a conversation that is deleted before the run was found sends nothing, nor does a pending approval."""
    paused = await run(ada, 'careful')
    await rounds()
    receiver.requests.clear()
    ended = await run(ada)
    for path in (ended['path'], paused['path']):
        assert (await ada.delete(path)).is_success
    await rounds()
    assert receiver.events == []
    assert await webhooks.tracked.count({'kind': 'approval'}) == 0


async def test_nothing_is_tracked_without_webhooks(
    ada: Client, hook: Webhook, webhooks: Webhooks, receiver: Receiver, rounds: Rounds
):
    """After the last webhook was removed, what was tracked is removed too, and a new one begins from then on."""
    await run(ada, 'careful')
    await rounds()
    assert await webhooks.tracked.count({'kind': 'approval'}) == 1
    await webhooks.remove(hook)
    await rounds()
    await rounds()
    assert [tracked.kind for tracked in (await webhooks.tracked.list()).items] == ['lease']
    await run(ada)
    await webhooks.create(owner='ada', url=receiver.url, events=['run.ended'])
    await rounds()
    assert receiver.types == ['approval.requested']


async def test_events_are_found_after_a_crash(
    ada: Client, hook: Webhook, webhooks: Webhooks, receiver: Receiver, served: Served, monkeypatch: pytest.MonkeyPatch
):
    """A process that dies between two rounds, or after it stored deliveries and before it noted that, loses and repeats
    nothing."""
    monkeypatch.setattr(_webhooks, 'PAGE', 1)  # the next process reads several pages
    await run(ada, 'careful')
    await run(ada)
    dying = await another(served, webhooks)
    with monkeypatch.context() as patch:
        patch.setattr(webhooks.tracked, 'apply', die_after(webhooks.tracked.apply, 2))
        with pytest.raises(ExceptionGroup):
            await dying()
    assert await webhooks.deliveries.count() >= 1
    await (await another(served, webhooks))()
    assert sorted(receiver.types) == ['approval.requested', 'run.ended']


def die_after(apply: Any, count: int) -> Any:
    """Return a function that fails after a number of calls."""
    calls = 0

    async def wrapped(changes: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > count:
            raise RuntimeError('died')
        await apply(changes)

    return wrapped


async def another(served: Served, webhooks: Webhooks) -> Rounds:
    """Return the sender of a process that begins after the previous one died."""
    for lease in (await webhooks.tracked.list({'kind': 'lease'})).items:
        await webhooks.tracked.upsert(lease.model_copy(update={'holder': 'a dead process'}))
    return new_rounds(served, webhooks)


@pytest.mark.slow
async def test_recovered_run_is_sent_once(
    ada: Client, hook: Webhook, receiver: Receiver, rounds: Rounds, served: Served, gate: Gate
):
    """A run that was resumed after a crash is sent when its last attempt has ended, with the id of the first."""
    conversation = (await ada.post('/api/conversations', json={'agent': 'held'})).headers['location'].split('/')[-1]
    [root] = await served.store.versions(VersionFilter(conversation_id=conversation))
    version = await served.state.agents['held'].load(root.id)
    async with anyio.create_task_group() as group:
        group.start_soon(end_quietly, version)
        await gate.reached.wait()
        for first in await served.store.runs():
            await served.store.release_run(first.id)  # as if its process had died
        gate.opened.set()
    [first] = await served.store.runs()
    await rounds()
    assert receiver.events == []
    await served.state.agents['held'].recover()
    await rounds()
    await rounds()
    assert [event['data']['run_id'] for event in receiver.events] == [first.id]
    assert receiver.events[0]['data']['status'] in ('complete', 'awaiting_approval')


async def end_quietly(version: AgentVersion[Any, Any]) -> None:
    """Run a turn that another process takes over."""
    with pytest.raises(RunTakenOverError):
        await version.advance('go')


async def test_runs_of_all_processes_are_listed_in_order(ada: Client, served: Served):
    """`runs_after` returns each run once, page by page, from the first one or from the end."""
    started = [(await run(ada))['id'] for _ in range(3)]
    found: list[str] = []
    position: int | None = 0
    while True:
        runs, after = await served.store.runs_after(position, limit=2)
        if after == position:
            break
        found, position = [*found, *(run.id for run in runs)], after
    assert found == started
    assert await served.store.runs_after(None) == ([], position)


async def test_running_runs_and_pending_approvals_are_unfinished(ada: Client, served: Served):
    """`unfinished` returns the ids of what has not ended."""
    await run(ada, 'careful')
    [approval] = await served.store.approvals()
    assert await served.store.unfinished() == (set(), {approval.id})
