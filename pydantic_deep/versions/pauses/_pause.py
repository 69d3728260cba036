"""The stored form of a paused run: its pending calls as pydantic-ai's requests, and one approval for each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import DeferredToolRequests
from pydantic_core import to_json

from pydantic_deep.approvals import PendingApproval, pending_approvals
from pydantic_deep.store import ApprovalRecord, Store, VersionRecord, new_id


def encode_pause(requests: DeferredToolRequests) -> bytes:
    """Return pending calls as JSON."""
    return _adapter().dump_json(requests)


def decode_pause(data: bytes) -> DeferredToolRequests:
    """Return pending calls from their JSON."""
    return _adapter().validate_json(data)


async def approvals_of(
    store: Store,
    base: VersionRecord,
    requests: DeferredToolRequests,
    *,
    pause_id: str | None,
    created_at: int,
    expires_at: int | None,
) -> tuple[list[ApprovalRecord], dict[str, str]]:
    """Return an approval for each pending call, and which approvals of the previous pause they supersede.

    The approvals have no version yet. If a call was already pending, its approval has the times of creation and expiry
    of the previous one. The second result has the ids of the new approvals, keyed by the ids of the superseded ones.
    """
    approvals = [
        _approval(base, pending, created_at=created_at, expires_at=expires_at)
        for pending in pending_approvals(requests)
    ]
    if pause_id is None:
        return approvals, {}
    before = await store.approvals(status=None, version_id=pause_id, limit=10_000)
    previous = {_key(old): old for old in before if old.status in ('pending', 'expired')}  # expired during the run
    supersedes = {previous[_key(new)].id: new.id for new in approvals if _key(new) in previous}
    return [_with_times(new, previous.get(_key(new))) for new in approvals], supersedes


def _key(approval: ApprovalRecord) -> tuple[str, str]:
    return approval.pending_id, approval.arguments_digest


def _with_times(new: ApprovalRecord, old: ApprovalRecord | None) -> ApprovalRecord:
    return new if old is None else new._replace(created_at=old.created_at, expires_at=old.expires_at)


def arguments_digest(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a digest of a tool call, independent of the order of its arguments."""
    canonical = json.dumps(dict(arguments), sort_keys=True, default=repr)
    return hashlib.sha256(f'{tool}\n{canonical}'.encode()).hexdigest()


def _approval(
    base: VersionRecord, pending: PendingApproval, *, created_at: int, expires_at: int | None
) -> ApprovalRecord:
    return ApprovalRecord(
        id=new_id(),
        version_id='',
        pending_id=pending.id,
        conversation_id=base.conversation_id,
        agent_name=base.agent_name,
        path=json.dumps(pending.path),
        tool_name=pending.tool,
        arguments=json.dumps(dict(pending.arguments), default=repr),  # in the order that the person sees
        arguments_digest=arguments_digest(pending.tool, pending.arguments),
        preview=None if pending.preview is None else to_json(pending.preview).decode(),
        status='pending',
        decision=None,
        decided_by=None,
        reason=None,
        decided_at=None,
        resumed_by=None,
        superseded_by=None,
        expires_at=expires_at,
        created_at=created_at,
    )


@cache
def _adapter() -> TypeAdapter[DeferredToolRequests]:
    return TypeAdapter(DeferredToolRequests)
