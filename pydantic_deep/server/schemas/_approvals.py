"""Approvals and decisions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, Field, JsonValue

from pydantic_deep.approvals import ApprovalView, Approve, Decision, Deny, Edit, Respond
from pydantic_deep.server.access._ownership import ServedVersion
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.store import ApprovalRecord, ApprovalStatus, Store
from pydantic_deep.versions.pauses._inbox import inbox_item

from ._fields import EXAMPLE_DIGEST, EXAMPLE_ID, EXAMPLE_MOMENT, Reason, example_config, moment

_VIEW = {
    'path': [],
    'tool': ['write_file'],
    'arguments': [
        {'name': ['path'], 'kind': 'text', 'value': ['/report.md'], 'in_preview': False},
        {'name': ['content'], 'kind': 'text', 'value': ['# Sales ', '\\u202e', ''], 'in_preview': False},
    ],
    'preview': None,
    'escapes': 1,
    'digest': EXAMPLE_DIGEST,
}


class ApprovalShape(BaseModel):
    """A call that waits for a person, or has waited."""

    model_config = example_config(
        {
            'id': EXAMPLE_ID,
            'pending_id': 'call_1',
            'version_id': EXAMPLE_ID,
            'conversation_id': EXAMPLE_ID,
            'agent': 'analyst',
            'path': [],
            'tool': 'write_file',
            'args': {'path': '/report.md', 'content': '# Sales'},
            'view': _VIEW,
            'decisions': ['approve', 'edit', 'deny'],
            'status': 'pending',
            'decided_by': None,
            'reason': None,
            'decided_at': None,
            'expires_at': None,
            'created_at': EXAMPLE_MOMENT,
        }
    )

    id: str
    """Names it among all."""
    pending_id: str
    """Names it among those of its version, as `approval_required` tells it and `resume` takes it."""
    version_id: str
    """The version that waits."""
    conversation_id: str
    """The conversation."""
    agent: str
    """The agent that asks."""
    path: list[str]
    """The subagents that lead to the call."""
    tool: str
    """The tool."""
    args: dict[str, JsonValue]
    """All arguments, for a program. To show them to a person, show `view`: in it nothing can hide."""
    view: ApprovalView
    """What a person is to be shown of the call, and the `digest` that an answer carries."""
    decisions: list[Literal['approve', 'edit', 'deny', 'respond']]
    """Which answers it takes."""
    status: ApprovalStatus
    """What became of it."""
    decided_by: str | None
    """Who answered: the owner of the key that did, or whoever it was elsewhere."""
    reason: str | None
    """Why it was answered so."""
    decided_at: AwareDatetime | None
    """When it was answered."""
    expires_at: AwareDatetime | None
    """When it counts as denied; null for never."""
    created_at: AwareDatetime
    """When it was asked."""


class ApprovalPage(BaseModel):
    """Some of the approvals that were asked for."""

    items: list[ApprovalShape]
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

    approval: ApprovalShape
    """It."""
    run_id: str | None
    """The run that goes on with it, if `resume` was asked for and nothing waits any more."""


def build_approval(record: ApprovalRecord, version: ServedVersion) -> ApprovalShape:
    """Build an approval of a version."""
    pending = next((each for each in version.pending if each.id == record.pending_id), None)
    item = inbox_item(record)
    return ApprovalShape(
        id=record.id,
        pending_id=record.pending_id,
        version_id=record.version_id,
        conversation_id=record.conversation_id,
        agent=record.agent_name,
        path=list(item.path),
        tool=record.tool_name,
        args=json.loads(record.arguments),
        view=item.view,
        decisions=[] if pending is None else list(pending.decisions),
        status=record.status,
        decided_by=record.decided_by,
        reason=record.reason,
        decided_at=None if record.decided_at is None else moment(record.decided_at),
        expires_at=None if record.expires_at is None else moment(record.expires_at),
        created_at=moment(record.created_at),
    )


async def load_approvals(
    store: Store, version: ServedVersion | None, status: ApprovalStatus | None = None
) -> list[ApprovalShape]:
    """Load the approvals of a version; all of them if no status is given."""
    if version is None or version.state != 'awaiting_approval':
        return []
    found = await store.approvals(status=status, version_id=version.id, limit=10_000)
    return [build_approval(each, version) for each in found]


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
