"""The documents that commands about versions print with `--json`, one for each command.

Readers should skip fields that they do not know: new ones may come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue, TypeAdapter

from pydantic_deep.approvals import DiffView
from pydantic_deep.store import RequestKind
from pydantic_deep.streaming import Approval, Outcome
from pydantic_deep.todos import Todo


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a conversation or a difference used."""

    requests: int = 0
    """Responses of models."""
    tool_calls: int = 0
    """Tool calls that succeeded."""
    input_tokens: int = 0
    """Tokens sent, over all requests, cached ones included."""
    output_tokens: int = 0
    """Tokens that models wrote."""


@dataclass(frozen=True, kw_only=True)
class VersionRow:
    """A version in a list."""

    id: str
    """Its id."""
    parent_id: str | None
    """The version that it came from; `null` for the beginning of a conversation."""
    merged_from: str | None
    """The second parent of a merge."""
    kind: Literal['root', 'step', 'turn', 'pause', 'edit', 'merge']
    """How it came to be."""
    state: Literal['complete', 'awaiting_approval', 'interrupted', 'failed']
    """What became of its turn."""
    is_waiting: bool
    """Whether it waits still: nothing has gone on with its answers."""
    conversation_id: str
    """The conversation."""
    branch: str
    """The branch that its messages are on."""
    run_id: str | None
    """The run that made it."""
    agent_name: str
    """The agent that made it."""
    name: str | None
    """The name that it was given."""
    model: str | None
    """The model that answered."""
    created_at: str
    """When it was made: ISO 8601, UTC."""
    message_count: int
    """How many messages its history has."""
    prompt: str | None
    """What the person said that began the turn; `null` where nobody said anything."""
    calls: list[str]
    """The tools that the model called last; of steps only."""
    files_changed: int | None
    """How many files differ from those of the parent; `null` where files are not versioned."""
    is_head: bool
    """Whether the directory has its files."""


@dataclass(frozen=True, kw_only=True)
class ContextUsage:
    """Where the tokens of a version's conversation go: what `context` prints. Those of `last_request` and the cost are what
    providers told; all others are counted.
    """

    version: str
    """The id of the version."""
    is_exact: bool
    """Whether the model's own tokenizer counted; else they are estimated."""
    system: int | None
    """Instructions; `null` before the first turn."""
    tools: int | None
    """The schemas of the tools; `null` before the first turn."""
    skills: int | None
    """The catalogue of skills, and those that were loaded; `null` before the first turn."""
    files: int
    """What the tools on files were asked and answered, and files in prompts."""
    summary: int
    """Summaries in place of earlier messages."""
    history: int
    """Everything else that was said."""
    counted: int
    """The sum of those that are known."""
    context_window: int | None
    """How many tokens the model takes; `null` where it is not known."""
    last_request: RequestTokens | None
    """What the provider told of the last request; `null` if nothing."""
    cost: str | None
    """US dollars of the conversation so far, as a decimal number; `null` where no price is known."""
    unpriced_requests: int
    """How many requests the cost is without."""


@dataclass(frozen=True, kw_only=True)
class RequestTokens:
    """The tokens of a request, as its provider counted them."""

    input_tokens: int
    """Sent, cached ones included."""
    cache_read_tokens: int
    """Sent and found in the provider's cache."""
    cache_write_tokens: int
    """Sent and written to the provider's cache."""
    output_tokens: int
    """Written by the model."""


@dataclass(frozen=True, kw_only=True)
class CallRow:
    """A tool call."""

    id: str
    """The id of the call."""
    tool: str
    """The name of the tool."""
    args: dict[str, JsonValue]
    """The arguments."""
    outcome: Outcome | None
    """How it ended; `null` for one that waits."""
    result: str | None
    """What the model was told; `null` for one that waits."""
    exit_code: int | None
    """With which code a command ended; `null` for other tools, and where it did not end by itself."""


@dataclass(frozen=True, kw_only=True)
class RequestRow:
    """A request to a model."""

    number: int
    """From 1, within the turn."""
    model: str
    """The model."""
    settings: dict[str, JsonValue]
    """The settings that it was sent with."""
    input_tokens: int
    """Tokens sent."""
    output_tokens: int
    """Tokens that the model wrote."""
    cost: str | None
    """US dollars, as a decimal number; `null` where no price is known."""
    seconds: float
    """How long it took."""
    kind: RequestKind
    """What became of its answer."""


@dataclass(frozen=True, kw_only=True)
class FileRow:
    """A file that is different."""

    path: str
    """The path, from the root of the files."""
    kind: Literal['added', 'removed', 'changed']
    """What became of it."""
    size_before: int | None
    """Bytes; `null` if it was not there."""
    size_after: int | None
    """Bytes; `null` if it is not there."""
    diff: str | None
    """A unified diff, for a program to apply; `null` for what is no text, or too large."""
    view: DiffView | None
    """The same as typed lines, as it is shown; `null` likewise."""


@dataclass(frozen=True, kw_only=True)
class SubagentRow:
    """A conversation that a call delegated to."""

    conversation_id: str
    """On the wire `sub_agent_thread_id`."""
    subagent: str
    """The name that it was called by."""
    intent: str
    """What it was asked to do."""
    state: str
    """What became of it."""
    version_id: str | None
    """Its newest version."""
    subagents: list[SubagentRow]
    """Those that it delegated to in turn."""


@dataclass(frozen=True, kw_only=True)
class ProtectedRow:
    """A protected file that a turn changed."""

    path: str
    """Its path below the directory."""
    change: Literal['added', 'changed', 'removed']
    """What became of it."""


@dataclass(frozen=True, kw_only=True)
class OmittedRow:
    """A file that a version does not have."""

    path: str
    """Its path."""
    reason: str
    """Why: `too large`, `unreadable` or `invalid path`."""
    size_bytes: int | None
    """Its size, where that is known."""


@dataclass(frozen=True, kw_only=True)
class VersionDetails:
    """A version, and what happened in its turn up to it, over all pauses: what `show` prints."""

    version: VersionRow
    """The version."""
    metadata: dict[str, JsonValue]
    """What was kept with it."""
    steps: list[str]
    """The ids of the steps of the turn, in their order."""
    calls: list[CallRow]
    """The tool calls of the turn, in their order."""
    output: str | None
    """The answer; of a turn that was stopped or failed, as much of it as had come."""
    error: str | None
    """Why the run failed."""
    usage: Usage
    """What the conversation has used up to here."""
    requests: list[RequestRow]
    """The requests of the turn."""
    files: list[FileRow]
    """The files that differ from those that the turn began with."""
    protected: list[ProtectedRow]
    """What the turn made of files that programs of the host run or obey, whether or not versions have them."""
    omitted_files: list[OmittedRow]
    """Files that were there and that the version does not have."""
    todos: list[Todo]
    """The plan."""
    subagents: list[SubagentRow]
    """Whom it delegated to."""
    pending: list[Approval]
    """The calls that wait for a person; none once a run has gone on with the answers."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What is different from one version to another: what `diff` prints."""

    before: str
    """The id of the one."""
    after: str
    """The id of the other."""
    messages_common: int
    """How many messages both begin with."""
    messages_removed: list[JsonValue]
    """The messages that only the first has, as pydantic-ai writes them."""
    messages_added: list[JsonValue]
    """The messages that only the second has."""
    files: list[FileRow]
    """The files that are different."""
    todos_before: list[Todo]
    """The plan of the first."""
    todos_after: list[Todo]
    """The plan of the second."""
    usage: Usage
    """What the second has used more than the first; fields may be negative."""


@dataclass(frozen=True, kw_only=True)
class ApprovalRow:
    """A call that waits for a person, or has waited: what `approvals` prints."""

    id: str
    """The id of the approval."""
    version_id: str
    """The version that waits."""
    agent_name: str
    """The agent."""
    backend: str | None
    """Where its files are: a directory, or `PROVIDER:ID` of another backend; `null` where no version has them."""
    status: Literal['pending', 'approved', 'edited', 'denied', 'responded', 'expired', 'superseded']
    """What became of it."""
    approval: Approval
    """The call."""
    decided_by: str | None
    """Who answered."""
    reason: str | None
    """Why it was answered so, if somebody said why; of a call that no person denied, what the model is told."""
    args: dict[str, JsonValue] | None
    """The arguments that a person gave in place of the model's."""
    created_at: str
    """Since when it waits: ISO 8601, UTC."""
    decided_at: str | None
    """When it was answered."""
    expires_at: str | None
    """When it counts as denied."""


@dataclass(frozen=True, kw_only=True)
class CheckoutReport:
    """What `checkout` and `rewind` print."""

    version: VersionRow
    """The version that the directory has now."""
    kept: VersionRow | None
    """The version of the edits that were in none; `null` if there were no such edits."""
    left: list[str]
    """With `rewind`: the ids of the turns that are not before the head any more. They stay in the store."""


@dataclass(frozen=True, kw_only=True)
class MergeConflict:
    """A file that both sides changed so that only a person can say what is to be."""

    path: str
    """The path."""
    kind: str
    """Why it cannot be merged."""


@dataclass(frozen=True, kw_only=True)
class MergeReport:
    """What `merge` prints."""

    version: VersionRow | None
    """The version that was made; `null` if nothing was."""
    conflicts: list[MergeConflict]
    """Why nothing was made."""


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """What `replay` prints."""

    version: str
    """The id of the version."""
    is_exact: bool
    """Whether every request was the same as then."""
    requests: int
    """How many requests were compared."""
    difference_number: int | None = None
    """Which request is the first that differs, from 1; `null` if none does."""
    difference_part: str | None = None
    """What of it differs: `settings`, `tools`, `instructions`, `options`, `messages` or `count`."""
    difference: str | None = None
    """A unified diff, or a sentence."""


@dataclass(frozen=True, kw_only=True)
class GarbageCollectionReport:
    """What `gc` prints."""

    removed: dict[str, int] = field(default_factory=dict[str, int])
    """How many rows went, by kind."""
    condemned: int
    """How much nothing reaches, and goes the next time."""
    freed_bytes: int
    """The size of the contents that went."""


@dataclass(frozen=True, kw_only=True)
class DamageRow:
    """What `store check` prints of each damage."""

    table: str | None
    """The table; none where only a page of the file is known."""
    row: str | None
    """The row, by its id, digest or number."""
    problem: str
    """What is wrong with it."""
    versions: list[str]
    """The versions that depend on it."""
    conversations: list[str]
    """The conversations of these."""


def dump_json(value: object) -> JsonValue:
    """Return a document, or a list of them, as JSON values."""
    return TypeAdapter[object](type(value)).dump_python(value, mode='json')
