"""Paused turns as versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep import ApprovalInbox, Approve, Deny, LocalBackend, create_deep_agent
from pydantic_deep.approvals import NothingPendingError
from pydantic_deep.store import VersionNotFoundError, open_store
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import ApprovalsPendingError, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore
from tests.versions.pauses.conftest import ASK, outcomes, pause, team, write

pytestmark = pytest.mark.anyio


async def test_deleted_and_collected_pause_cannot_be_cloned_or_resumed() -> None:
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(ScriptedModel(call('ls')), interrupt_on={'ls': True}), store)
        paused = await (await agent.create()).advance('go')
        await store.delete(paused.id)
        await store.gc(0)
        with pytest.raises(VersionNotFoundError, match=paused.id):
            await paused.clone()
        with pytest.raises(VersionNotFoundError, match=paused.id):
            await paused.with_metadata({'a': 1})
        with pytest.raises(VersionNotFoundError, match=paused.id):
            await paused.resume({paused.pending[0].id: Approve()})


async def test_pending_turn_is_a_version(make: MakeAgent):
    paused = await pause(make, write('/a.txt'), 'done')

    assert (paused.kind, paused.state, paused.output) == ('pause', 'awaiting_approval', None)
    [pending] = paused.pending
    assert (pending.tool, pending.path) == ('write_file', ())
    assert pending.preview is not None
    assert '/a.txt' in str(pending.preview)


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


async def test_calls_that_stay_pending_preserve_their_deadline(make: MakeAgent, inbox: ApprovalInbox):
    paused = await pause(make, [write('/a.txt'), write('/b.txt')], approval_timeout_seconds=60)
    _, before = await inbox.list()

    again = await paused.resume({paused.pending[0].id: Approve()})

    [after] = await inbox.list()
    assert (after.version_id, after.pending_id) == (again.id, before.pending_id)
    assert (after.created_at, after.expires_at) == (before.created_at, before.expires_at)


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


async def test_pending_delegation_has_a_call_event_and_no_response_event(make: MakeAgent):
    agent = make(call('task', subagent='lead', description='a'), write('/one.txt'), interrupt_on=ASK, subagents=team())
    paused = await (await agent.create()).advance('go')

    assert [event.kind for event in await agent.events(paused.conversation_id)] == ['tool_call']
