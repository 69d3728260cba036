"""`OpenaiObject`: what the store has no place for in a response or a conversation of OpenAI's Responses API.

A response is a run, and a conversation is one of the store: without a row, each has its contents and default fields.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field, JsonValue

OPENAI_OBJECT_FIELDS = ('owner', 'created_at')
"""The indexed fields of the rows."""


class OpenaiObject(BaseModel):
    """A response or a conversation, as its client has created it."""

    id: str
    """The id of the response or the conversation, with its prefix."""
    owner: str
    """The owner of the conversation."""
    created_at: datetime
    """When the row was stored."""
    fields: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """Fields of the request that the object repeats; of a conversation, also its first items."""
    system: str = ''
    """Of a response: the SHA-256 of the system prompt that is in effect after it."""
    is_deleted: bool = False
    """Whether the client has deleted the object. The run of a response has no other mark of it."""
