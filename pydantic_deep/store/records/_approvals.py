"""Approvals and decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from ._basics import Json

ApprovalStatus: TypeAlias = Literal['pending', 'approved', 'edited', 'denied', 'responded', 'expired', 'superseded']
"""Status of an approval. `superseded`: still pending in a later version, under another id."""


class ApprovalRecord(NamedTuple):
    """The approval of one tool call, pending or answered."""

    id: str
    """A UUIDv7, unique in the store."""
    version_id: str
    """The version that ended with the call pending."""
    pending_id: str
    """Id within the pending calls of that version: ids of tool calls, joined by `/`."""
    conversation_id: str
    """The conversation of that version."""
    agent_name: str
    """The name of the agent of that conversation."""
    path: Json
    """A JSON array with the names of the subagents that lead to the call."""
    tool_name: str
    """The name of the called tool."""
    arguments: Json
    """The tool's arguments, a JSON object."""
    arguments_digest: str
    """Digest of the tool and arguments shown to the person; a decision applies only to these."""
    preview: Json | None
    """A JSON object with the preview that was shown."""
    status: ApprovalStatus
    """The current status; an approval that is pending past its deadline is read as `expired`."""
    decision: Json | None
    """A JSON object with the content of the decision."""
    decided_by: str | None
    """The person or service that decided."""
    reason: str | None
    """The reason given for the decision."""
    decided_at: int | None
    """When the decision was stored; `None` while it is pending."""
    resumed_by: str | None
    """The run that acts on the decision."""
    superseded_by: str | None
    """The approval that replaces this one in a later version."""
    expires_at: int | None
    """When the approval counts as denied; `None` for never."""
    created_at: int
    """When the version with the pending call was stored."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A person's decision on one approval."""

    approval_id: str
    """The id of the `ApprovalRecord` to answer."""
    status: Literal['approved', 'edited', 'denied', 'responded']
    """The kind of the decision."""
    decision: Json
    """A JSON object with the content of the decision: edited arguments, or the response to the model."""
    arguments_digest: str
    """Digest of the tool and arguments that the person was shown; a mismatch with the approval is an error."""
    by: str | None = None
    """The person or service that decides."""
    reason: str | None = None
    """The reason for the decision."""
