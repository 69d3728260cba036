"""Rules about approvals."""

from __future__ import annotations

import asyncio
import time

import pytest

from pydantic_deep.store._ids import new_id
from pydantic_deep.store._samples import MOMENT, Dialogue, sample_approval
from pydantic_deep.store.errors import ApprovalAnsweredError, ApprovalNotFoundError, VersionNotFoundError
from pydantic_deep.store.records import Commit

from ._base import WRITERS, OpenStore, StoreRules, as_decision


class ApprovalRules(StoreRules):
    """Rules about approvals."""

    async def test_approvals_are_listed_oldest_first(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first, second = sample_approval(root), sample_approval(root, agent_name='critic')
        store = dialogue.store
        await store.commit(Commit(approvals=[first, second]))
        assert await store.approvals() == [first, second]
        assert await store.approvals(limit=1) == [first]
        assert await store.approvals(agent_name='critic') == [second]
        assert await store.approvals(version_id=root.id, status=None) == [first, second]
        assert await store.approvals(version_id=new_id()) == []
        assert await store.approvals(status='denied') == []
        assert await store.approval(first.id) == first
        with pytest.raises(ApprovalNotFoundError):
            await store.approval(new_id())

    async def test_approval_is_answered_once(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(3)]
        dialogue = Dialogue(stores[0])
        approval = sample_approval(await dialogue.begin())
        await stores[0].commit(Commit(approvals=[approval]))

        async def decide(index: int) -> str | None:
            try:
                await stores[index % 3].decide([as_decision(approval.id, by=f'person {index}', reason='why')])
            except ApprovalAnsweredError as error:
                assert (error.id, error.status) == (approval.id, 'approved')
                return error.by
            return None

        answers = await asyncio.gather(*(decide(index) for index in range(WRITERS)))
        winner = f'person {answers.index(None)}'
        assert sorted(answers, key=str) == sorted([None, *[winner] * (WRITERS - 1)], key=str)
        stored = await stores[1].approval(approval.id)
        assert (stored.status, stored.decided_by, stored.reason) == ('approved', winner, 'why')
        assert stored.decided_at is not None

    async def test_decisions_are_stored_together_or_not_at_all(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first, second = sample_approval(root), sample_approval(root)
        store = dialogue.store
        await store.commit(Commit(approvals=[first, second]))
        for bad, error in (
            (as_decision(new_id()), ApprovalNotFoundError),
            (as_decision(second.id, arguments_digest='other'), ValueError),
            (as_decision(first.id), ApprovalAnsweredError),
        ):
            with pytest.raises(error):
                await store.decide([as_decision(first.id), bad])
            assert await store.approvals() == [first, second]
        decided = await store.decide([as_decision(second.id, 'denied'), as_decision(first.id, decision='{"a":2}')])
        assert [(approval.id, approval.status, approval.decision) for approval in decided] == [
            (second.id, 'denied', '{}'), (first.id, 'approved', '{"a":2}'),
        ]  # fmt: skip

    async def test_approval_expires(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        late = sample_approval(root, expires_at=MOMENT)
        open_ = sample_approval(root, expires_at=(time.time_ns() // 1000) + 10**12)
        store = dialogue.store
        await store.commit(Commit(approvals=[late, open_]))
        assert await store.approvals() == [open_]
        assert await store.approvals(status='expired') == [late._replace(status='expired')]
        assert (await store.approval(late.id)).status == 'expired'
        with pytest.raises(ApprovalAnsweredError, match='expired'):
            await store.decide([as_decision(late.id)])
        assert (await store.decide([as_decision(open_.id)]))[0].status == 'approved'

    async def test_approval_that_stays_pending_as_another_is_superseded(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        old, new = sample_approval(root), sample_approval(root)
        store = dialogue.store
        await store.commit(Commit(approvals=[old]))
        await store.commit(Commit(approvals=[new], supersedes={old.id: new.id}))
        superseded = await store.approval(old.id)
        assert (superseded.status, superseded.superseded_by) == ('superseded', new.id)
        with pytest.raises(ApprovalAnsweredError, match=new.id):
            await store.decide([as_decision(old.id)])

    async def test_one_run_claims_the_answers_of_a_version(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        first, second = sample_approval(root), sample_approval(root)
        store = dialogue.store
        await store.commit(Commit(approvals=[first, second]))
        await store.decide([as_decision(first.id)])
        claimed = await store.claim_approvals(root.id, 'run')
        assert [(approval.id, approval.status, approval.resumed_by) for approval in claimed] == [
            (first.id, 'approved', 'run'), (second.id, 'pending', 'run'),
        ]  # fmt: skip
        assert await store.claim_approvals(root.id, 'run') == claimed
        with pytest.raises(ApprovalAnsweredError, match='run'):
            await store.claim_approvals(root.id, 'other')
        with pytest.raises(ApprovalAnsweredError, match='without an answer'):
            await store.decide([as_decision(second.id)])
        with pytest.raises(VersionNotFoundError):
            await store.claim_approvals(new_id(), 'run')
