"""The types of an `AuditRecord`, the row for one run in a repository."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Status: TypeAlias = Literal['running', 'success', 'failed', 'interrupted', 'awaiting_approval', 'crashed']
"""The status of a run: in progress; answered; ended by an exception; cancelled, for example by a client that
disconnected; pending approval; or ended by a crash of its process or store, after which it may be resumed.
"""

Outcome: TypeAlias = Literal['success', 'failed', 'denied', 'interrupted', 'retried', 'deferred']
"""The outcome of a tool call, as in the message with its result. `deferred` calls are pending. `interrupted` includes
calls with an unknown outcome.
"""


class _Row(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra='ignore', defer_build=True)


class Contents(_Row):
    """The arguments or the result of a call."""

    value: JsonValue = None
    """The value, with secrets redacted; `None` if it was omitted."""
    is_whole: bool = True
    """Whether `value` is present. Values that are too large are only in the messages."""
    size_bytes: int
    """The size as JSON with secrets redacted, in bytes."""
    digest: str
    """The SHA-256 of the value as JSON with secrets redacted: `json.dumps(…, sort_keys=True, separators=(',', ':'))`.
    """


class AuditedCall(_Row):
    """A tool call of a run."""

    id: str
    """The id in the response that made the call. Ids may repeat."""
    name: str
    """The name of the tool."""
    arguments: Contents
    """The arguments of the call."""
    outcome: Outcome
    """The outcome of the call."""
    result: Contents | None = None
    """The result that the model received; `None` if it received none."""
    started_at: datetime | None = None
    """The time when execution started; `None` if the call did not run or was not observed."""
    ended_at: datetime | None = None
    """The time when execution ended."""


class AuditedGrant(_Row):
    """Commands that a skill, loaded in this run, allows without approval from then on."""

    skill: str
    """The name of the skill."""
    commands: list[str]
    """The command patterns, word by word: `git status *`."""
    by: Literal['code', 'person']
    """Who granted them: the application's code, or a person when the skill was loaded."""


class AuditedUsage(_Row):
    """The usage of a run's requests. Runs of subagents have their own records."""

    requests: int = 0
    """The number of answered requests."""
    input_tokens: int = 0
    """Tokens sent, as counted by the provider, including cached ones."""
    output_tokens: int = 0
    """Tokens that the model generated."""
    cache_read_tokens: int = 0
    """Input tokens that were read from the provider's cache."""
    cache_write_tokens: int = 0
    """Input tokens that were written to the provider's cache."""


class AuditedError(_Row):
    """The error that ended a run."""

    kind: str
    """The class name of the exception."""
    message: str
    """The message of the exception, with secrets redacted."""


class AuditRecord(_Row):
    """One run of an agent or subagent. Secrets with a known name or format are redacted.

    The record contains the complete history, including earlier runs, unless a store does: then `version_id` names the
    version with the history, and `messages` is empty. `rehydrate` reads both.
    """

    id: str
    """A UUIDv7, so that records sort by the start of their runs."""
    run_id: str
    """The id of the run."""
    conversation_id: str | None = None
    """The id of the conversation."""
    parent_run_id: str | None = None
    """The id of the run whose tool call started this one."""
    attempt_of: str | None = None
    """The id of the crashed run that this one resumes."""
    agent_name: str
    """The name of the agent, which identifies it."""
    version_id: str | None = None
    """The store version in which the run ended. It contains the complete history."""
    owner: str | None = None
    """The owner of the run: metadata `owner` or `….owner`, or the owner of the parent run for a subagent without one.
    """
    tenant: str | None = None
    """The tenant of the run: metadata `tenant`, found like `owner`."""
    session_id: str | None = None
    """The client's session id: metadata `session_id`, found like `owner`; otherwise that of `session_scope` or
    `stream_agent(session_id=…)`.
    """
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """The merged metadata of deps, base version and run, with secrets redacted. Later ones of these take precedence."""
    question: str
    """The prompt, with media as type and size. For a run that resumes an earlier one, the earlier prompt."""
    messages: list[JsonValue] = Field(default_factory=list[JsonValue])
    """The complete history as pydantic-ai's JSON, unless a store has it."""
    first_new: int = 0
    """The index of the first message of this run in `messages`."""
    model: str | None = None
    """The model of the last response, as `provider:name`."""
    model_settings: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """The effective settings of the last request, with secrets redacted."""
    usage: AuditedUsage = AuditedUsage()
    """The usage of the run itself, without subagents."""
    cost: Decimal | None = None
    """The cost in US dollars of all responses with a known price; `None` if no price is known."""
    status: Status
    """The status of the run."""
    error: AuditedError | None = None
    """The error that ended or interrupted the run."""
    tool_calls: list[AuditedCall] = Field(default_factory=list[AuditedCall])
    """The calls that the run made or provided results for, in the order of responses."""
    grants: list[AuditedGrant] = Field(default_factory=list[AuditedGrant])
    """The grants of the skills that the run loaded."""
    output: JsonValue = None
    """The output of the run."""
    started_at: datetime
    """The time when the run started."""
    ended_at: datetime | None = None
    """The time when the run ended or was found to have crashed; `None` while it is in progress."""


AUDIT_FIELDS: Final = (
    'run_id', 'conversation_id', 'parent_run_id', 'agent_name', 'owner', 'tenant', 'session_id', 'model', 'status',
    'started_at', 'ended_at',
)  # fmt: skip
"""The fields that records are filtered and sorted by. Open a repository of `AuditRecord` with them."""
