"""Approvals and decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue

from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.views import StoredApproval

from ._fields import EXAMPLE_DIGEST, Reason, example_config


class ApprovalPage(BaseModel):
    """Some of the approvals that were asked for."""

    items: list[StoredApproval]
    """Those of the newest versions first."""
    cursor: str | None
    """What to ask the next page with; null if this is the last."""


class Answer(BaseModel):
    """What a person decides of one call."""

    model_config = example_config(
        {'decision': 'edit', 'args': {'path': '/report.md', 'content': '# Sales of May'}, 'digest': EXAMPLE_DIGEST},
        extra='forbid',
    )

    decision: Literal['approve', 'edit', 'deny', 'respond']
    """Let it run as shown, run it with `args`, do not run it, or answer in the place of the tool with `content`."""
    args: dict[str, JsonValue] | None = None
    """Of `edit`: all arguments."""
    content: JsonValue = None
    """Of `respond`: what the model sees as the result."""
    reason: Reason | None = None
    """Of `deny`: what the model is told. Of all: why."""
    digest: Annotated[str, Field(min_length=64, max_length=64)] | None = None
    """The `view.digest` of the approval as the person was shown it: the answer is refused with 409 if the call is
    another one. Needed for all but `deny`."""


class AnsweredApproval(BaseModel):
    """An approval after its answer."""

    approval: StoredApproval
    """It."""
    run_id: str | None
    """The run that goes on with it, if `resume` was asked for and nothing waits any more."""


def to_decision(answer: Answer) -> Decision:
    """Convert the body of an answer to a decision.

    Raises:
        ServerError: `args` belong to another decision, or a decision other than `deny` has no digest.
    """
    if answer.digest is None and answer.decision != 'deny':
        raise ServerError(
            'invalid',
            f'The decision {answer.decision!r} needs `digest`: the `view.digest` of the approval as the person was '
            'shown it. Only `deny` goes without.',
        )
    if answer.args is not None and answer.decision != 'edit':
        raise ServerError('invalid', f'`args` belong to the decision `edit`, and this is {answer.decision!r}.')
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
                raise ServerError('invalid', 'The decision `edit` needs `args`: all arguments of the call.')
            return Edit(answer.args, digest=answer.digest)
