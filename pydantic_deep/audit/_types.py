"""What is known of one run: an `AuditRecord`, a row that any repository keeps."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Status: TypeAlias = Literal['running', 'success', 'failed', 'interrupted', 'awaiting_approval', 'crashed']
"""What became of a run: it still works; it has answered; an exception ended it; it was cancelled, as when a client
leaves; it waits for a person; its process crashed, or its
store failed, and it may be resumed."""

Outcome: TypeAlias = Literal['success', 'failed', 'denied', 'interrupted', 'retried', 'deferred']
"""What became of a tool call, as the message with its result says. `deferred` is one that waits; `interrupted` is also
one of which nothing is known."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra='ignore', defer_build=True)


class Contents(_Row):
    """What a call was given or has returned."""

    value: JsonValue = None
    """It, without secrets; `None` if it is left out."""
    is_whole: bool = True
    """Whether `value` is all of it. What is too large is left out here, and is in the messages."""
    size_bytes: int
    """How long it is as JSON, without secrets."""
    digest: str
    """SHA-256 of it as JSON, without secrets: of `json.dumps(…, sort_keys=True, separators=(',', ':'))`."""


class AuditedCall(_Row):
    """A tool call of a run."""

    id: str
    """Its id in the response that asked for it; ids repeat."""
    name: str
    """The tool."""
    arguments: Contents
    """What it was called with."""
    outcome: Outcome
    """What became of it."""
    result: Contents | None = None
    """What the model was told; `None` if it was told nothing."""
    started_at: datetime | None = None
    """When it began to run; `None` if it never did, or nobody saw it."""
    ended_at: datetime | None = None
    """When it ended."""


class AuditedGrant(_Row):
    """Commands that a skill, loaded in this run, lets run without asking from then on."""

    skill: str
    """The name of the skill."""
    commands: list[str]
    """The patterns, word by word: `git status *`."""
    by: Literal['code', 'person']
    """Who granted them: the code of the application, or a person when the skill was loaded."""


class AuditedUsage(_Row):
    """What the requests of a run have used. Those of its subagents are in records of their own."""

    requests: int = 0
    """How many requests were answered."""
    input_tokens: int = 0
    """What was sent, as the provider counts; what was cached is part of it."""
    output_tokens: int = 0
    """What came back."""
    cache_read_tokens: int = 0
    """What of the input came from the cache of the provider."""
    cache_write_tokens: int = 0
    """What of the input went into it."""


class AuditedError(_Row):
    """Why a run failed."""

    kind: str
    """The class of the exception."""
    message: str
    """What it says, without secrets."""


class AuditRecord(_Row):
    """One run of an agent, of whichever kind, that of a subagent too. It holds no secrets that have a name or a shape.

    The history is whole, and stored once. Where versions of the run are in a store, `version_id` says which has it and
    `messages` are empty; everywhere else it is in `messages`, those of earlier runs included, so that a record stands
    by itself. `rehydrate` reads both.
    """

    id: str
    """A UUIDv7: records sort by when their runs began."""
    run_id: str
    """The run."""
    conversation_id: str | None = None
    """The conversation."""
    parent_run_id: str | None = None
    """The run whose tool call started this one."""
    attempt_of: str | None = None
    """The run of a dead process that this one goes on with."""
    agent_name: str
    """The name of the agent, which is all the id that an agent has."""
    version_id: str | None = None
    """The version that the run has ended with, in its store; it has the whole history."""
    owner: str | None = None
    """Whose run it is: `owner`, or `….owner`, of the metadata; that of the run above, if a subagent's has none."""
    tenant: str | None = None
    """On whose behalf: `tenant` of the metadata, likewise."""
    session_id: str | None = None
    """What the client calls its session: `session_id` of the metadata, likewise; else that of `session_scope` or
    `stream_agent(session_id=…)`."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """The metadata of the deps, of the version that the run begins from, and of the run, without secrets; of one key, the
    last of these."""
    question: str
    """What the user asked: texts as they are, media by kind and size. Where a run only goes on, what was asked before."""
    messages: list[JsonValue] = Field(default_factory=list[JsonValue])
    """The whole history as JSON, as pydantic-ai writes it, if no store has it."""
    first_new: int = 0
    """Which of `messages` is the first of this run."""
    model: str | None = None
    """The model that answered last, as `provider:name`."""
    model_settings: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """The effective settings of the last request, without secrets."""
    usage: AuditedUsage = AuditedUsage()
    """What the run itself has used."""
    cost: Decimal | None = None
    """US dollars of the responses whose price is known; `None` if no price is."""
    status: Status
    """What became of the run."""
    error: AuditedError | None = None
    """Why it failed, or was interrupted."""
    tool_calls: list[AuditedCall] = Field(default_factory=list[AuditedCall])
    """The calls that the run has made or ended, in the order of its responses."""
    grants: list[AuditedGrant] = Field(default_factory=list[AuditedGrant])
    """What skills that the run has loaded were granted."""
    output: JsonValue = None
    """What the run has answered."""
    started_at: datetime
    """When it began."""
    ended_at: datetime | None = None
    """When it ended, or was found to have crashed; `None` as long as it runs."""


AUDIT_FIELDS: Final = (
    'run_id', 'conversation_id', 'parent_run_id', 'agent_name', 'owner', 'tenant', 'session_id', 'model', 'status',
    'started_at', 'ended_at',
)  # fmt: skip
"""The fields by which records are filtered and ordered: what to open a repository of `AuditRecord` with."""
