"""Conversations and their transcripts."""

from __future__ import annotations

import json

from pydantic import AwareDatetime, BaseModel, Field, JsonValue

from pydantic_deep.server._state import OWNER, ServerState
from pydantic_deep.server.access._ownership import AuthorizedConversation, ServedVersion
from pydantic_deep.server.runs._stored_runs import load_running_runs, load_suspended_runs
from pydantic_deep.store import VersionState
from pydantic_deep.todos import Todo

from ._approvals import ApprovalShape, load_approvals
from ._fields import EXAMPLE_ID, EXAMPLE_MOMENT, Name, example_config, moment
from ._usage import UsageShape, build_usage


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


class ConversationShape(BaseModel):
    """A conversation."""

    model_config = example_config(
        {
            'id': EXAMPLE_ID,
            'agent': 'analyst',
            'name': 'Sales of May',
            'metadata': {},
            'head': EXAMPLE_ID,
            'state': 'complete',
            'branch': 'main',
            'running': [],
            'suspended': [],
            'todos': [{'content': 'Read the table', 'status': 'completed'}],
            'approvals': [],
            'usage': {'input_tokens': 1200, 'output_tokens': 80, 'requests': 2, 'tool_calls': 1},
            'created_at': EXAMPLE_MOMENT,
        }
    )

    id: str
    """Names it."""
    agent: str
    """The agent."""
    name: str | None
    """What people call it."""
    metadata: dict[str, JsonValue]
    """What is kept with its versions."""
    head: str | None
    """The version that the next turn goes on from."""
    state: VersionState | None
    """What became of the turn that ended there."""
    branch: str | None
    """The branch of the head."""
    running: list[str]
    """The ids of the runs that work in it now."""
    suspended: list[str]
    """The ids of its suspended runs, oldest first: resume each, or cancel it."""
    todos: list[Todo]
    """The plan at the head."""
    approvals: list[ApprovalShape]
    """What waits at the head."""
    usage: UsageShape
    """What the conversation has used up to the head."""
    created_at: AwareDatetime
    """When it was begun."""


class ConversationSummary(BaseModel):
    """A conversation in a list."""

    model_config = example_config(
        {'id': EXAMPLE_ID, 'agent': 'analyst', 'name': 'Sales of May', 'head': EXAMPLE_ID, 'created_at': EXAMPLE_MOMENT}
    )

    id: str
    """Names it."""
    agent: str
    """The agent."""
    name: str | None
    """What people call it."""
    head: str | None
    """The version that the next turn goes on from."""
    created_at: AwareDatetime
    """When it was begun."""


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


async def build_conversation(
    state: ServerState, own: AuthorizedConversation, head: ServedVersion | None
) -> ConversationShape:
    """Build a conversation, as it is at its head."""
    metadata: dict[str, JsonValue] = json.loads((own.newest if head is None else head.record).metadata)
    return ConversationShape(
        id=own.id,
        agent=own.record.agent_name,
        name=own.newest.name if head is None else head.name,
        metadata={key: value for key, value in metadata.items() if key != OWNER},
        head=own.record.head_id,
        state=None if head is None else head.state,
        branch=None if head is None else head.branch,
        running=await running_ids(state, own.id),
        suspended=[run.id for run in await load_suspended_runs(state.store, state.runs, own.id)],
        todos=[] if head is None else head.todos,
        approvals=await load_approvals(state.store, head),
        usage=UsageShape() if head is None else build_usage(head.usage),
        created_at=moment(own.record.created_at),
    )


async def running_ids(state: ServerState, conversation_id: str) -> list[str]:
    """Return the ids of the running runs of a conversation, in any process, oldest first."""
    here = {run.id for run in state.runs.runs_in(conversation_id)}
    return sorted(here | {run.id for run in await load_running_runs(state.store, state.runs, conversation_id)})
