"""Conversations as stored."""

from __future__ import annotations

from typing import ClassVar

from pydantic import AwareDatetime, ConfigDict, JsonValue

from pydantic_deep._examples import EXAMPLE_ID, EXAMPLE_MOMENT, example_config
from pydantic_deep.store import VersionState
from pydantic_deep.todos import Todo

from ._approvals import StoredApproval
from ._base import View
from ._usage import Usage


class ConversationSummary(View):
    """A conversation, as listed."""

    model_config: ClassVar[ConfigDict] = example_config(
        {'id': EXAMPLE_ID, 'agent': 'analyst', 'name': 'Sales of May', 'head': EXAMPLE_ID, 'created_at': EXAMPLE_MOMENT}
    )

    id: str
    """The id of the conversation."""
    agent: str
    """The name of the agent."""
    name: str | None
    """The display name that users gave it."""
    head: str | None
    """The version from which the next turn starts; null if it was deleted."""
    created_at: AwareDatetime
    """When the conversation was created."""


class ContextSize(View):
    """How much of the model's context window the conversation takes."""

    model_config: ClassVar[ConfigDict] = example_config({'tokens': 12_400, 'window': 200_000})

    tokens: int
    """The tokens of the last request and its response, as the provider counted them."""
    window: int | None
    """The context window of the model that responded, in tokens; null if it is unknown."""


class ConversationDetails(ConversationSummary):
    """A conversation with its state at the head."""

    model_config: ClassVar[ConfigDict] = example_config(
        {
            'id': EXAMPLE_ID,
            'agent': 'analyst',
            'name': 'Sales of May',
            'head': EXAMPLE_ID,
            'created_at': EXAMPLE_MOMENT,
            'metadata': {},
            'state': 'complete',
            'branch': 'main',
            'running': [],
            'suspended': [],
            'todos': [{'content': 'Read the table', 'status': 'completed'}],
            'approvals': [],
            'usage': {'input_tokens': 1200, 'output_tokens': 80, 'requests': 2, 'tool_calls': 1},
            'context': {'tokens': 700, 'window': 200_000},
        }
    )

    metadata: dict[str, JsonValue]
    """The metadata, which all versions of the conversation inherit."""
    state: VersionState | None
    """The state of the head: how its turn ended."""
    branch: str | None
    """The name of the branch of the head."""
    running: list[str]
    """Ids of the running runs, oldest first."""
    suspended: list[str]
    """Ids of the suspended runs, oldest first. Each can be resumed or cancelled."""
    todos: list[Todo]
    """The todos of the agent at the head."""
    approvals: list[StoredApproval]
    """The approvals of the head, pending and answered."""
    usage: Usage
    """The usage of the conversation up to the head."""
    context: ContextSize | None
    """How full the context of the model is at the head; null before the first response, and if the provider reported no
    usage."""
