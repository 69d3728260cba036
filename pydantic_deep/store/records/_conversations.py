"""Conversations, branches and messages."""

from __future__ import annotations

from typing import NamedTuple


class MessageRecord(NamedTuple):
    """A message in its place."""

    id: str
    """A UUIDv7; the same message on two branches has one."""
    seq: int
    """Its place in the history, from 0."""
    body: bytes
    """JSON. Bytes of media are not in it but in assets."""


class BranchRecord(NamedTuple):
    """A line of messages: those of its parent up to a point, then its own."""

    id: str
    """A UUIDv7."""
    conversation_id: str
    """The conversation."""
    name: str
    """Unique within the conversation."""
    parent_id: str | None
    """The branch that it comes from; `None` for the first of a conversation."""
    fork_seq: int
    """How many messages it has from its parent."""
    tip_seq: int
    """How many messages it has in all."""
    rewrites_id: str | None
    """The branch whose history it tells anew, such as by a summary."""
    rewrites_seq: int | None
    """How many messages of that branch it stands for."""
    created_at: int
    """When it was made."""


class ConversationRecord(NamedTuple):
    """All turns of one dialogue."""

    id: str
    """A UUIDv7, or what its creator chose."""
    agent_name: str
    """The name of the agent."""
    head_id: str | None
    """The version that the handle of the conversation points at."""
    created_at: int
    """When it was made."""
