"""Approvals are found by the beginning of their ids, and decisions on other contents are refused."""

from __future__ import annotations

import pytest

from pydantic_deep.store import ApprovalNotFoundError, ApprovalRecord, Commit, Decision, SqlStore, new_id
from pydantic_deep.store._samples import Dialogue, sample_approval

pytestmark = pytest.mark.anyio


async def add_approvals(store: SqlStore, *ids: str) -> list[ApprovalRecord]:
    """Store a paused version with approvals."""
    version = await Dialogue(store).begin()
    approvals = [sample_approval(version, id=id, pending_id=f'call-{id}') for id in ids]
    await store.commit(Commit(approvals=approvals))
    return approvals


async def test_approval_is_found_by_the_beginning_of_its_id(store: SqlStore) -> None:
    [approval] = await add_approvals(store, new_id())
    assert await store.approval(approval.id[:13]) == approval


async def test_beginning_of_several_ids_finds_none(store: SqlStore) -> None:
    start = new_id()[:-1]
    await add_approvals(store, f'{start}0', f'{start}1')
    with pytest.raises(ApprovalNotFoundError, match=start):
        await store.approval(start)
    assert (await store.approval(f'{start}1')).id == f'{start}1'


async def test_decision_on_other_arguments_decides_nothing(store: SqlStore) -> None:
    first, second = await add_approvals(store, new_id(), new_id())
    decisions = [
        Decision(approval_id=each.id, status='approved', decision='{}', by='ada', reason=None, arguments_digest=digest)
        for each, digest in ((first, first.arguments_digest), (second, 'another'))
    ]
    with pytest.raises(ValueError, match=f"decision on {second.id} is for arguments with the digest 'another'"):
        await store.decide(decisions)
    assert [each.status for each in await store.approvals()] == ['pending', 'pending']
