"""Conversations and their transcripts."""

from __future__ import annotations

from pydantic import BaseModel, Field, JsonValue

from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._ownership import AuthorizedConversation
from pydantic_deep.server.runs._stored_runs import load_running_runs, load_suspended_runs
from pydantic_deep.views import ConversationDetails, ConversationSummary

from ._fields import Name, example_config


class NewConversation(BaseModel):
    """A conversation to be begun."""

    model_config = example_config({'agent': 'analyst', 'name': 'Sales of May'}, extra='forbid')

    agent: Name
    """The agent."""
    name: Name | None = None
    """What people call it."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue], max_length=100)
    """What is kept with all its versions. Keys that begin with `server.` are the server's own."""
    instructions: str | None = Field(default=None, max_length=100_000)
    """What the agent is told in all turns besides its own instructions. Every key that may begin a conversation may set it."""


class ConversationChange(BaseModel):
    """What is to be different in a conversation."""

    model_config = example_config({'name': 'Sales of June'}, extra='forbid')

    name: Name
    """What people call it from now on."""


class ConversationPage(BaseModel):
    """Some of the conversations that were asked for."""

    items: list[ConversationSummary]
    """Newest first."""
    cursor: str | None
    """What to ask the next page with; null if this is the last."""


class Transcript(BaseModel):
    """The messages of a version, in the form of `MessageList.to_dict()`."""

    model_config = example_config(
        {
            'format_version': 1,
            'messages': [{'kind': 'request', 'parts': [{'part_kind': 'user-prompt', 'content': 'Hello'}]}],
        }
    )

    format_version: int
    """The version of the format."""
    messages: list[JsonValue]
    """Oldest first."""


async def load_conversation(state: ServerState, own: AuthorizedConversation) -> ConversationDetails:
    """Load a conversation in its state at the head."""
    return await state.views.conversation(
        own.record,
        newest=own.newest,
        running=await running_ids(state, own.id),
        suspended=[run.id for run in await load_suspended_runs(state.store, state.runs, own.id)],
    )


async def running_ids(state: ServerState, conversation_id: str) -> list[str]:
    """Return the ids of the running runs of a conversation, in any process, oldest first."""
    here = {run.id for run in state.runs.runs_in(conversation_id)}
    return sorted(here | {run.id for run in await load_running_runs(state.store, state.runs, conversation_id)})
