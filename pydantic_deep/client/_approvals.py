"""Approvals: list pending calls and answer them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond
from pydantic_deep.errors import ValidationError
from pydantic_deep.store import ApprovalStatus
from pydantic_deep.views import AnsweredApproval, StoredApproval

from ._connection import Connection, present, segment


class ApprovalsClient:
    """Calls that a person decides on: `client.approvals`. The key needs the scope `approve`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(
        self,
        *,
        status: ApprovalStatus | None = 'pending',
        agent: str | None = None,
        conversation_id: str | None = None,
    ) -> AsyncGenerator[StoredApproval]:
        """Yield approvals, those of the newest versions first.

        Args:
            status: Only approvals with this status; `None` for all.
            agent: Only approvals of this agent.
            conversation_id: Only approvals of this conversation.
        """
        which = {'all': True} if status is None else {'status': status}
        return self._connection.items(
            StoredApproval, '/api/approvals', **which, agent=agent, conversation=conversation_id
        )

    async def get(self, approval_id: str) -> StoredApproval:
        """Return an approval. Show its `view` to the person who decides."""
        return await self._connection.get(StoredApproval, _path(approval_id))

    async def answer(
        self, approval: StoredApproval, decision: Decision, *, reason: str | None = None, resume: bool = False
    ) -> AnsweredApproval:
        """Answer an approval, once. The answer applies only to the call as it is in `approval`.

        Args:
            approval: The approval as it was shown to the person.
            decision: `Approve`, `Edit`, `Deny` or `Respond`. Its `digest` defaults to that of the approval.
            reason: The reason, for the record. The reason of a denial is that of `Deny`, which the model receives.
            resume: Whether to resume the turn if no approval is pending any more. `run_id` of the result is the run.

        Raises:
            ApiError: It was already answered, or the call has changed (409), or it does not accept the decision.
            ValidationError: `reason` is given beside `Deny`.
        """
        body = {**_body(decision, reason), 'digest': decision.digest or approval.view.digest}
        return await self._connection.post(AnsweredApproval, _path(approval.id), body, params={'resume': resume})


def _body(decision: Decision, reason: str | None) -> Mapping[str, object]:
    match decision:
        case Approve():
            fields = {'decision': 'approve'}
        case Edit(args):
            fields = {'decision': 'edit', 'args': args}
        case Respond(content):
            return {**present({'reason': reason}), 'decision': 'respond', 'content': content}
        case _:
            if reason is not None:
                raise ValidationError('reason', 'A denial has its own reason. Pass `Deny.because(reason)`.')
            fields = {'decision': 'deny'}
            reason = None if decision == Deny() else decision.reason
    return present({**fields, 'reason': reason})


def _path(approval_id: str) -> str:
    return f'/api/approvals/{segment("approval_id", approval_id)}'
