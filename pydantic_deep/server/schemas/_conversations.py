"""Conversations and their transcripts."""

from __future__ import annotations

from pydantic import BaseModel, Field, JsonValue

from pydantic_deep._examples import example_config
from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._ownership import AuthorizedConversation
from pydantic_deep.server.runs._stored_runs import active_run_ids, load_running_runs, load_suspended_runs
from pydantic_deep.views import ConversationDetails, ConversationSummary

from ._fields import Name


class NewConversation(BaseModel):
    """A conversation to create."""

    model_config = example_config({'agent': 'analyst', 'name': 'Sales of May'}, extra='forbid')

    agent: Name
    """The name of the agent."""
    name: Name | None = None
    """A display name for users."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue], max_length=100)
    """Metadata, stored with all versions of the conversation. Keys that start with `server.` are reserved."""
    instructions: str | None = Field(default=None, max_length=100_000)
    """Instructions for all turns, in addition to the agent's own. Any key that can create conversations can set them.
    """


class ConversationChange(BaseModel):
    """Changes to a conversation."""

    model_config = example_config({'name': 'Sales of June'}, extra='forbid')

    name: Name
    """The new display name."""


class ConversationPage(BaseModel):
    """A page of conversations."""

    items: list[ConversationSummary]
    """The conversations, newest first."""
    cursor: str | None
    """The cursor of the next page; null for the last page."""


class Transcript(BaseModel):
    """The messages of a version, in the format of `MessageList.to_dict()`."""

    model_config = example_config(
        {
            'format_version': 1,
            'messages': [{'kind': 'request', 'parts': [{'part_kind': 'user-prompt', 'content': 'Hello'}]}],
        }
    )

    format_version: int
    """The version of the transcript format."""
    messages: list[JsonValue]
    """The messages, oldest first."""


async def load_conversation(state: ServerState, own: AuthorizedConversation) -> ConversationDetails:
    """Load a conversation with its state at the head."""
    return await state.views.conversation(
        own.record,
        newest=own.newest,
        running=await running_ids(state, own.id),
        suspended=[run.id for run in await load_suspended_runs(state.store, state.runs, own.id)],
    )


async def unfinished_ids(state: ServerState, conversation_id: str) -> list[str]:
    """Return the ids of the queued, running and suspended runs of a conversation, oldest first."""
    begun = await active_run_ids(state.store, state.runs, conversation_id)
    stored = await state.store.runs(conversation_id=conversation_id, states=['running'])
    return sorted(begun | {run.id for run in stored})


async def running_ids(state: ServerState, conversation_id: str) -> list[str]:
    """Return the ids of the queued and running runs of a conversation, in any process, oldest first."""
    begun = await active_run_ids(state.store, state.runs, conversation_id)
    return sorted(begun | {run.id for run in await load_running_runs(state.store, state.runs, conversation_id)})
