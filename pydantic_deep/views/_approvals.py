"""Approvals as a store has them."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, JsonValue

from pydantic_deep.approvals import ApprovalView
from pydantic_deep.store import ApprovalStatus

from ._base import EXAMPLE_DIGEST, EXAMPLE_ID, EXAMPLE_MOMENT, View, example_config

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
    """An approval that is pending or was answered.

    It is the record of an `Approval` of the event `approval_required`, from the call to the decision. An event names a
    call within its run; the record outlives the run, so it has an `id` of its own, and the name in the event is its
    `pending_id`.
    """

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
            'edited_args': None,
            'decided_at': None,
            'expires_at': None,
            'created_at': EXAMPLE_MOMENT,
        }
    )

    id: str
    """The id of the approval, unique in the store."""
    pending_id: str
    """The id of the approval within its version: that of the event, and the key of an answer when a turn resumes."""
    version_id: str
    """The version that is pending."""
    conversation_id: str
    """The conversation of that version."""
    agent: str
    """The name of the agent."""
    path: list[str]
    """The names of the subagents that lead to the call; empty for a call of the agent itself."""
    tool: str
    """The name of the tool."""
    args: dict[str, JsonValue]
    """All arguments, for a program. To show them to a person, show `view`: in it nothing can hide."""
    view: ApprovalView
    """The call as a person must see it: escaped, with a preview and the `digest` that an answer carries."""
    decisions: list[Literal['approve', 'edit', 'deny', 'respond']]
    """The decisions that the call accepts; empty if its version was deleted."""
    status: ApprovalStatus
    """The state of the approval. `superseded` means pending in a later version, under another id."""
    decided_by: str | None
    """The person who answered: the owner of the key, or the name given at the command line."""
    reason: str | None
    """The reason for the decision; of an expired approval, the text that the model received."""
    edited_args: dict[str, JsonValue] | None
    """The arguments that a person gave in place of the model's, if the decision was `edit`."""
    decided_at: AwareDatetime | None
    """The moment of the answer."""
    expires_at: AwareDatetime | None
    """The moment after which the approval counts as denied; null for never."""
    created_at: AwareDatetime
    """The moment at which the turn paused."""
