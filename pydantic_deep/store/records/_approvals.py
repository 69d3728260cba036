"""Approvals and decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from ._basics import Json

ApprovalStatus: TypeAlias = Literal['pending', 'approved', 'edited', 'denied', 'responded', 'expired', 'superseded']
"""What became of an approval. `superseded` is one that waits on in a later version, under another id."""


class ApprovalRecord(NamedTuple):
    """One call that waits for a person, or has waited."""

    id: str
    """A UUIDv7, of this approval among all."""
    version_id: str
    """The version that waits."""
    pending_id: str
    """Its id among what that version waits for: ids of tool calls, with `/` between."""
    conversation_id: str
    """The conversation."""
    agent_name: str
    """The name of the agent."""
    path: Json
    """The names of the subagents on the way to it, an array."""
    tool_name: str
    """The tool."""
    arguments: Json
    """An object."""
    arguments_digest: str
    """Of the tool and the arguments that were shown; a decision is for these."""
    preview: Json | None
    """What was shown besides, an object."""
    status: ApprovalStatus
    """What became of it."""
    decision: Json | None
    """What was decided, an object."""
    decided_by: str | None
    """Who decided."""
    reason: str | None
    """Why."""
    decided_at: int | None
    """When it was decided."""
    resumed_by: str | None
    """The run that acts on the decision."""
    superseded_by: str | None
    """The approval that it waits on as."""
    expires_at: int | None
    """When it counts as denied; `None` for never."""
    created_at: int
    """When it was asked."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a person decided of one approval."""

    approval_id: str
    """The approval."""
    status: Literal['approved', 'edited', 'denied', 'responded']
    """What is decided."""
    decision: Json
    """What goes with it, an object: other arguments, or what the model is told."""
    arguments_digest: str
    """Of what the person was shown: a decision for something else is refused."""
    by: str | None = None
    """Who decides."""
    reason: str | None = None
    """Why."""
