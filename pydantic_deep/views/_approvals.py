"""Approvals as stored."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import AwareDatetime, ConfigDict, JsonValue

from pydantic_deep._examples import EXAMPLE_DIGEST, EXAMPLE_ID, EXAMPLE_MOMENT, example_config
from pydantic_deep.approvals import ApprovalView
from pydantic_deep.store import ApprovalStatus

from ._base import View
from ._repeats import Repeat

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


class StoredApproval(View):
    """An approval, pending or answered.

    This is the stored record of an `Approval` of the `approval_required` event, from the call to the decision. An event
    identifies a call within its run. The record outlives the run, so it has an `id` of its own, and the event's id is
    its `pending_id`.
    """

    model_config: ClassVar[ConfigDict] = example_config(
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
            'repeat': {'kind': 'tool', 'key': EXAMPLE_DIGEST},
            'status': 'pending',
            'decided_by': None,
            'reason': None,
            'edited_args': None,
            'response': None,
            'decided_at': None,
            'expires_at': None,
            'created_at': EXAMPLE_MOMENT,
        }
    )

    id: str
    """The id of the approval, unique in the store."""
    pending_id: str
    """The id of the approval within its version: the id in the event, and the key of the answer when a turn resumes."""
    version_id: str
    """The version that is pending."""
    conversation_id: str
    """The conversation of the pending version."""
    agent: str
    """The name of the agent."""
    path: list[str]
    """Names of the subagents that lead to the call; empty for a call of the agent itself."""
    tool: str
    """The name of the called tool."""
    args: dict[str, JsonValue]
    """All arguments, for programs. Show `view` to a person instead: it makes hidden characters visible."""
    view: ApprovalView
    """The call as a person must see it: escaped, with a preview and the `digest` that an answer must contain."""
    decisions: list[Literal['approve', 'edit', 'deny', 'respond']]
    """The decisions that the call accepts; empty if its version was deleted."""
    repeat: Repeat | None
    """The later calls of the conversation that a person can approve together with this one; null if each needs a decision
    of its own. The client remembers the answer, and answers them with their own digests."""
    status: ApprovalStatus
    """The state of the approval. `superseded` means pending in a later version, under another id."""
    decided_by: str | None
    """The person who answered: the owner of the API key, or the name given at the command line."""
    reason: str | None
    """The reason for the decision; for an expired approval, the text that the model received."""
    edited_args: dict[str, JsonValue] | None
    """For the decision `edit`: the arguments that replace those of the model."""
    response: JsonValue
    """For the decision `respond`: the result that the model receives, such as the answer to a question."""
    decided_at: AwareDatetime | None
    """When the approval was answered."""
    expires_at: AwareDatetime | None
    """When the approval expires and counts as denied; null if it does not expire."""
    created_at: AwareDatetime
    """When the turn paused for the approval."""


class AnsweredApproval(View):
    """An approval after its decision."""

    approval: StoredApproval
    """The approval in its new state."""
    run_id: str | None
    """The run that resumes the turn, if `resume` was requested and no approval is pending any more."""
