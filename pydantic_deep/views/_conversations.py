"""Conversations as a store has them."""

from __future__ import annotations

from pydantic import AwareDatetime, JsonValue

from pydantic_deep.store import VersionState
from pydantic_deep.todos import Todo

from ._approvals import StoredApproval
from ._base import EXAMPLE_ID, EXAMPLE_MOMENT, View, example_config
from ._usage import Usage


class ConversationSummary(View):
    """A conversation in a list."""

    model_config = example_config(
        {'id': EXAMPLE_ID, 'agent': 'analyst', 'name': 'Sales of May', 'head': EXAMPLE_ID, 'created_at': EXAMPLE_MOMENT}
    )

    id: str
    """The id of the conversation."""
    agent: str
    """The name of the agent."""
    name: str | None
    """The name that people gave it."""
    head: str | None
    """The version from which the next turn starts; null if it was deleted."""
    created_at: AwareDatetime
    """The moment at which the conversation was created."""


class ConversationDetails(ConversationSummary):
    """A conversation in its state at the head."""

    model_config = example_config(
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
        }
    )

    metadata: dict[str, JsonValue]
    """The metadata, which all versions of the conversation inherit."""
    state: VersionState | None
    """The result of the turn that ended at the head."""
    branch: str | None
    """The branch of the head."""
    running: list[str]
    """The ids of the running runs, oldest first."""
    suspended: list[str]
    """The ids of the suspended runs, oldest first: resume each, or cancel it."""
    todos: list[Todo]
    """The plan at the head."""
    approvals: list[StoredApproval]
    """The approvals of the head."""
    usage: Usage
    """The usage of the conversation up to the head."""
