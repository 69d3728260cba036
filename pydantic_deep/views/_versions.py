"""Versions, the activity of their turns, and their differences."""

from __future__ import annotations

from typing import ClassVar

from pydantic import AwareDatetime, ConfigDict, JsonValue

from pydantic_deep._examples import EXAMPLE_ID, EXAMPLE_MOMENT, example_config
from pydantic_deep.store import RequestKind, RunState, VersionKind, VersionState
from pydantic_deep.streaming import Outcome
from pydantic_deep.todos import Todo
from pydantic_deep.versions import FileDiff, OmittedFile
from pydantic_deep_backends import ProtectedChange

from ._approvals import StoredApproval
from ._base import View
from ._usage import Usage


class Version(View):
    """A version: the state of a conversation at one point in time."""

    model_config: ClassVar[ConfigDict] = example_config(
        {
            'id': EXAMPLE_ID,
            'parent_id': None,
            'merged_from': None,
            'conversation_id': EXAMPLE_ID,
            'agent': 'analyst',
            'kind': 'turn',
            'state': 'complete',
            'is_pending': False,
            'branch': 'main',
            'name': None,
            'prompt': 'Summarize /uploads/sales.csv.',
            'calls': [],
            'run_id': EXAMPLE_ID,
            'message_count': 4,
            'model': 'openai:gpt-5.2',
            'usage': {'input_tokens': 1200, 'output_tokens': 80, 'requests': 2, 'tool_calls': 1},
            'files_changed': ['/report.md'],
            'protected_changes': [{'path': '/.git/config', 'change': 'changed'}],
            'omitted_files': [],
            'is_head': True,
            'created_at': EXAMPLE_MOMENT,
        }
    )

    id: str
    """The id of the version, a UUIDv7."""
    parent_id: str | None
    """The version that it was derived from, even if that was deleted; null for the first of a conversation."""
    merged_from: str | None
    """The id of the second parent, for a merge."""
    conversation_id: str
    """The id of the conversation."""
    agent: str
    """The name of the agent."""
    kind: VersionKind
    """How the version was created: `step` within a turn, `turn` or `pause` at the end of one, `edit` without one."""
    state: VersionState
    """The state of the turn at this version."""
    is_pending: bool
    """Whether the version has approvals that no run has resumed with."""
    branch: str
    """The name of the branch that contains its messages."""
    name: str | None
    """The display name of the conversation."""
    prompt: str | None
    """The prompt that started the turn, with `/NAME` for each skill that the user loaded, and `[media]` for each media
    part; null if the turn had none."""
    calls: list[str]
    """For a step: the names of the tools that the model called last."""
    run_id: str | None
    """The id of the run that created the version."""
    message_count: int
    """The number of messages in the history."""
    model: str | None
    """The model that responded last, as `provider:name`."""
    usage: Usage
    """The usage of the conversation up to this version."""
    files_changed: list[str] | None
    """Paths of the files that differ from those of the parent; null if files are not versioned."""
    protected_changes: list[ProtectedChange]
    """Protected files that the turn changed, such as those of git, whether or not versions include them."""
    omitted_files: list[OmittedFile]
    """Files of the directory that the version does not include."""
    is_head: bool
    """Whether the version is the head of its conversation, from which the next turn starts."""
    created_at: AwareDatetime
    """When the version was created."""


class ToolCall(View):
    """A tool call of a turn, with its result."""

    id: str
    """The id of the tool call."""
    name: str
    """The name of the called tool."""
    args: str
    """The arguments as the model wrote them: JSON, unless the model made a mistake."""
    outcome: Outcome | None
    """How the call ended; null for a pending call."""
    content: str | None
    """The result as the model received it; null for a pending call."""
    exit_code: int | None
    """The exit code of a command; null for other tools and for a command that was stopped."""


class StoredRequest(View):
    """A request to a model."""

    number: int
    """The number of the request within the turn, from 1."""
    model: str
    """The name of the model that responded."""
    settings: dict[str, JsonValue]
    """The effective model settings, with secrets redacted."""
    input_tokens: int
    """Tokens sent to the model, including cached tokens."""
    output_tokens: int
    """Tokens that the model generated."""
    cache_read_tokens: int
    """Sent tokens that were read from the provider's cache."""
    cache_write_tokens: int
    """Sent tokens that were written to the provider's cache."""
    cost: str | None
    """The cost in US dollars, as a decimal number; null if the price is unknown."""
    seconds: float
    """The duration of the request."""
    kind: RequestKind
    """How the run used the response; `answer` if the run continued with it."""


class SubagentTree(View):
    """The conversation of a subagent, and the conversations that it delegated to."""

    conversation_id: str
    """The conversation of the subagent. Events call it `sub_agent_thread_id`."""
    subagent: str
    """The name of the subagent."""
    intent: str
    """The task in the words of the model."""
    tool_call_id: str
    """The id of the tool call that delegated the task."""
    state: RunState
    """The state of the last run of the conversation."""
    version_id: str | None
    """The newest version of the conversation."""
    subagents: list[SubagentTree]
    """The conversations that the subagent delegated to."""


class VersionDetails(Version):
    """A version with its turn so far, including all pauses of the turn."""

    metadata: dict[str, JsonValue]
    """The metadata of the version."""
    steps: list[str]
    """Ids of the steps of the turn, oldest first."""
    tool_calls: list[ToolCall]
    """The tool calls of the turn, oldest first."""
    output: str | None
    """The output as text, or as JSON if structured; for an interrupted or failed turn, the partial output."""
    error: str | None
    """Why the run failed; null if it did not."""
    requests: list[StoredRequest]
    """The model requests of the turn, oldest first."""
    files: list[FileDiff]
    """The files that differ from those at the start of the turn, sorted by path."""
    todos: list[Todo]
    """The todos of the agent at this version."""
    subagents: list[SubagentTree]
    """The conversations that the turn delegated to."""
    approvals: list[StoredApproval]
    """The approvals of the version, pending and answered."""


class Difference(View):
    """The differences from one version to another."""

    model_config: ClassVar[ConfigDict] = example_config(
        {
            'before': EXAMPLE_ID,
            'after': EXAMPLE_ID,
            'messages_common': 2,
            'messages_removed': [],
            'messages_added': [],
            'files': [
                {
                    'path': '/a.txt',
                    'shown_path': ['/a.txt'],
                    'kind': 'added',
                    'diff': '--- a/a.txt\n+++ b/a.txt\n@@ -0,0 +1 @@\n+b\n',
                    'view': {
                        'path': ['/a.txt'],
                        'kind': 'added',
                        'hunks': [
                            {
                                'header': '@@ -0,0 +1 @@',
                                'lines': [
                                    {'kind': 'added', 'before': None, 'after': 1, 'text': ['b'], 'is_ended': True}
                                ],
                            }
                        ],
                        'hidden_lines': 0,
                        'added': 1,
                        'removed': 0,
                    },
                    'size_before': None,
                    'size_after': 2,
                },
            ],
            'todos_before': [],
            'todos_after': [],
            'usage': {'input_tokens': 100, 'output_tokens': 10, 'requests': 1},
        }
    )

    before: str
    """The id of the first version."""
    after: str
    """The id of the second version."""
    messages_common: int
    """The number of leading messages that both histories share."""
    messages_removed: list[JsonValue]
    """Messages only in the first version, as pydantic-ai serializes them."""
    messages_added: list[JsonValue]
    """Messages only in the second version, as pydantic-ai serializes them."""
    files: list[FileDiff]
    """The changed files, sorted by path."""
    todos_before: list[Todo]
    """The plan in the first version."""
    todos_after: list[Todo]
    """The plan in the second version."""
    usage: Usage
    """The usage of the second minus that of the first."""
