"""Approvals and decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue

from pydantic_deep._examples import EXAMPLE_DIGEST, example_config
from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond, render_view
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.views import StoredApproval

from ._fields import Reason


class ApprovalPage(BaseModel):
    """A page of approvals."""

    items: list[StoredApproval]
    """The approvals, those of the newest versions first."""
    cursor: str | None
    """The cursor of the next page; null for the last page."""


class Answer(BaseModel):
    """A person's decision on a single call."""

    model_config = example_config(
        {'decision': 'edit', 'args': {'path': '/report.md', 'content': '# Sales of May'}, 'digest': EXAMPLE_DIGEST},
        extra='forbid',
    )

    decision: Literal['approve', 'edit', 'deny', 'respond']
    """`approve` runs the call as shown, `edit` runs it with `args`, `deny` does not run it, and `respond` returns
    `content` in place of a tool result."""
    args: dict[str, JsonValue] | None = None
    """For `edit`: the complete arguments."""
    content: JsonValue = None
    """For `respond`: the result that the model receives."""
    reason: Reason | None = None
    """The reason for the decision. For `deny`, the model receives it."""
    digest: Annotated[str, Field(min_length=64, max_length=64)] | None = None
    """The `view.digest` of the approval as the person saw it. The answer fails with 409 if the call has changed.
    Required except for `deny`."""


class PendingCall(BaseModel):
    """A call that needs a decision, as MCP and A2A show it."""

    approval: str
    tool: str
    call: str
    """The complete call, with invisible characters escaped."""
    decisions: list[Literal['approve', 'edit', 'deny', 'respond']]
    digest: str
    conversation: str
    version: str

    @property
    def is_question(self) -> bool:
        """Whether the call is a question, which a person answers and nobody approves."""
        return 'respond' in self.decisions and 'approve' not in self.decisions


def pending_call(approval: StoredApproval) -> PendingCall:
    """Return a pending approval as a client must show it."""
    return PendingCall(
        approval=approval.id,
        tool=approval.tool,
        call=render_view(approval.view),
        decisions=approval.decisions,
        digest=approval.view.digest,
        conversation=approval.conversation_id,
        version=approval.version_id,
    )


def to_decision(answer: Answer) -> Decision:
    """Convert the body of an answer to a decision.

    Raises:
        ServerError: `args` are given for another decision than `edit` or missing for it, or a decision other than
            `deny` has no digest.
    """
    if answer.digest is None and answer.decision != 'deny':
        raise ServerError(
            'invalid',
            f'The decision {answer.decision!r} requires `digest`: the `view.digest` of the approval as the person saw '
            'it. Only `deny` works without it.',
        )
    if answer.args is not None and answer.decision != 'edit':
        raise ServerError('invalid', f'Only the decision `edit` accepts `args`, and this is {answer.decision!r}.')
    match answer.decision:
        case 'approve':
            return Approve(digest=answer.digest)
        case 'deny':
            deny = Deny() if answer.reason is None else Deny(answer.reason)
            return replace(deny, digest=answer.digest)
        case 'respond':
            return Respond(answer.content, digest=answer.digest)
        case _:
            if answer.args is None:
                raise ServerError('invalid', 'The decision `edit` requires `args`: the complete arguments of the call.')
            return Edit(answer.args, digest=answer.digest)
