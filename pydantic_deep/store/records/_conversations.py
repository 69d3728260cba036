"""Conversations, branches and messages."""

from __future__ import annotations

from typing import NamedTuple


class MessageRecord(NamedTuple):
    """A message at its position on a branch."""

    id: str
    """A UUIDv7; a message on two branches has the same id on both."""
    seq: int
    """Position in the history, from 0."""
    body: bytes
    """The message as JSON. The bytes of media are in assets."""


class BranchRecord(NamedTuple):
    """A line of messages: those of its parent up to a fork, then its own."""

    id: str
    """A UUIDv7, unique in the store."""
    conversation_id: str
    """The conversation that the branch belongs to."""
    name: str
    """Name, unique within the conversation."""
    parent_id: str | None
    """The parent branch; `None` for the first of a conversation."""
    fork_seq: int
    """Number of messages taken from the parent."""
    tip_seq: int
    """Total number of messages."""
    rewrites_id: str | None
    """The branch that this one rewrites, as by a summary."""
    rewrites_seq: int | None
    """Number of messages of that branch that are replaced."""
    created_at: int
    """When the branch was created."""


class ConversationRecord(NamedTuple):
    """A conversation with one agent."""

    id: str
    """A UUIDv7, or an id that its creator chose."""
    agent_name: str
    """The name of the agent that it was created for."""
    head_id: str | None
    """The version that the head of the conversation points to."""
    created_at: int
    """When the conversation was created."""
