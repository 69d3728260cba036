"""Answers to pending approvals. Each approval accepts one answer, from the inbox or `resume`, and one run uses it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import NoneType
from typing import Any, cast

from pydantic_ai import DeferredToolRequests, DeferredToolResults

from pydantic_deep._checks import check_object
from pydantic_deep._spans import VERSION_ID, open_span
from pydantic_deep.approvals import Approve, Deny, Edit, Respond, answer_approvals, check_decisions
from pydantic_deep.approvals import Decision as Answer
from pydantic_deep.store import ApprovalAnsweredError, ApprovalRecord, Decision, Store, VersionRecord, new_id, now
from pydantic_deep.versions.errors import NothingAnsweredError

EXPIRED = 'Nobody answered in time.'
"""The result that the model sees for a call whose approval expired."""

_NOT_ACTED_ON = 'The answer is stored, but no run has used it yet: `resume()` without answers uses it.'


async def decide(
    store: Store,
    record: VersionRecord,
    requests: DeferredToolRequests,
    answers: Mapping[str, Answer],
    *,
    by: str | None,
    reason: str | None,
    resumes: bool,
) -> None:
    """Store answers to the pending approvals of a version.

    Args:
        store: The store.
        record: The version.
        requests: Its pending calls.
        answers: Answers, keyed by the id of each pending call.
        by: The person who answers.
        reason: The reason for the answers.
        resumes: Whether a run uses the answers now, so that calls that cannot stay pending need one, here or in the
            store.

    Raises:
        ApprovalError: An answer is invalid, or one is missing; none is stored.
        ApprovalAnsweredError: An approval is already answered; none is stored.
    """
    check_decisions(requests, answers)
    approvals = await store.approvals(status=None, version_id=record.id, limit=10_000)
    if resumes:
        answer_approvals(requests, {**answers_of(approvals), **answers})
    approval_by_pending = {approval.pending_id: approval for approval in approvals}
    decisions = [
        encode_decision(approval_by_pending[id], answer, by=by, reason=reason) for id, answer in answers.items()
    ]
    with open_span('answer approvals', {VERSION_ID: record.id, 'pydantic_deep.approvals': len(decisions)}):
        try:
            await store.decide(decisions)
        except ApprovalAnsweredError as error:
            if (await store.approval(error.id)).resumed_by is not None:
                raise
            raise ApprovalAnsweredError(error.id, error.status, error.by, error.at, _NOT_ACTED_ON) from None


async def claim(store: Store, version_id: str, requests: DeferredToolRequests, run_id: str) -> DeferredToolResults:
    """Claim the answers to the pending approvals of a version for a run, and return them for `agent.run`.

    Raises:
        ApprovalAnsweredError: Another run has claimed them.
        NothingAnsweredError: There is no answer.
        UnansweredApprovalError: A call that cannot stay pending has no answer.
    """
    # Both errors come before the claim, so that the approvals can still be answered.
    answers = answers_of(await store.approvals(status=None, version_id=version_id, limit=10_000))
    if not answers:
        raise NothingAnsweredError(version_id)
    answer_approvals(requests, answers)
    return answer_approvals(requests, answers_of(await store.claim_approvals(version_id, run_id)))


def answers_of(approvals: list[ApprovalRecord]) -> dict[str, Answer]:
    """Return the answers of approvals, keyed by their id within their version."""
    return {approval.pending_id: answer for approval in approvals if (answer := decode_decision(approval)) is not None}


def encode_decision(approval: ApprovalRecord, answer: Answer, *, by: str | None, reason: str | None) -> Decision:
    """Encode an answer for the store.

    Raises:
        ValidationError: The reason is not a text.
    """
    check_object('reason', reason, (str, NoneType), 'Pass a text.')
    match answer:
        case Approve():
            status, decision = 'approved', {}
        case Edit():
            status, decision = 'edited', {'args': dict(answer.args)}
        case Deny():
            status, decision = 'denied', {'reason': answer.reason}
        case _:
            status, decision = 'responded', {'content': answer.content}
    return Decision(
        approval_id=approval.id,
        status=cast('Any', status),
        decision=json.dumps(decision),
        arguments_digest=approval.arguments_digest,
        by=by,
        reason=reason,
    )


def decode_decision(approval: ApprovalRecord) -> Answer | None:
    """Return the answer of an approval; `None` if it has none."""
    decision: dict[str, Any] = json.loads(approval.decision or '{}')
    match approval.status:
        case 'approved':
            return Approve()
        case 'edited':
            return Edit(decision['args'])
        case 'denied':
            return Deny(decision['reason'])
        case 'responded':
            return Respond(decision['content'])
        case 'expired':
            return Deny(EXPIRED)
        case _:
            return None


async def fresh_approvals(store: Store, record: VersionRecord, version_id: str) -> list[ApprovalRecord]:
    """Return pending copies of the approvals of a version, for another one. Their time until expiry starts again."""
    if record.state != 'awaiting_approval':
        return []
    moment = now()
    return [
        approval._replace(
            id=new_id(),
            version_id=version_id,
            status='pending',
            decision=None,
            decided_by=None,
            reason=None,
            decided_at=None,
            resumed_by=None,
            superseded_by=None,
            expires_at=None if approval.expires_at is None else moment + approval.expires_at - approval.created_at,
            created_at=moment,
        )
        for approval in await store.approvals(status=None, version_id=record.id, limit=10_000)
    ]
