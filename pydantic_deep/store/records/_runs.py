"""Runs, their requests, calls and delegations."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from ._basics import Json

RequestKind: TypeAlias = Literal['answer', 'rejected', 'interrupted', 'skipped', 'summary', 'failed', 'superseded']
"""What became of an answer: the run went on with it; a hook or a validator sent it back to the model; it was cut off, as
by a cancelled stream; a capability gave it in place of the model, which was not asked; it is the summary of a history;
it was billed and the run could not use it, like that of a model that a fallback replaced; it was lost in a crash, and the
model was asked again."""


RunState: TypeAlias = Literal['running', 'complete', 'awaiting_approval', 'interrupted', 'failed']
"""What became of a run. `interrupted` is a run that was cancelled, or whose process died and that was recovered."""


CallStatus: TypeAlias = Literal['started', 'done', 'failed', 'deferred', 'superseded']
"""What is known of a tool call: it may have run; it has, with a result; it has, without; it waits; it may have run in a
process that crashed, and is made again by a later run."""


class RunRecord(NamedTuple):
    """One run of an agent, that of a subagent too."""

    id: str
    """A UUIDv7."""
    conversation_id: str
    """The conversation."""
    base_id: str | None
    """The version that it began from."""
    agent_name: str
    """The name of the agent."""
    attempt_of: str | None
    """The run of a dead process that it goes on with."""
    parent_run_id: str | None
    """The run whose tool call started it."""
    state: RunState
    """What became of it."""
    owner: str | None
    """Which open store works on it, while it is `running`."""
    prompt: bytes | None
    """What the user said, as JSON, until a message has it."""
    options: Json
    """What else it was started with, for whoever recovers it: an object."""
    usage: Json
    """What it has used by itself, an object."""
    cost: str | None
    """US dollars, as a decimal number; `None` where no price is known."""
    error: Json | None
    """Why it failed: an object with `type` and `message`."""
    trace_id: str | None
    """The trace that it is part of, 32 hexadecimal digits."""
    started_at: int
    """When it began."""
    ended_at: int | None
    """When it ended; `None` as long as it runs."""


class RequestRecord(NamedTuple):
    """One request to a model that was answered, or one that a capability answered in its place."""

    run_id: str
    """The run."""
    number: int
    """From 1, within the run."""
    response_id: str
    """The message that answered it; an id of its own where no message of a version has the answer."""
    model: str
    """The model that answered, as `provider:name`."""
    model_settings: Json
    """The effective settings, an object."""
    parameters: str | None
    """The digest of the asset with what was sent besides messages: tools, instructions, output mode."""
    digest: str
    """Of the whole request in its canonical form."""
    message_digests: str | None
    """The digest of the asset that says what the history does not: the prompt where a capability has rewritten it, and the
    messages that were sent where they are not those of the history. `None` if the history tells all."""
    input_tokens: int
    """What was sent, as the provider counts."""
    output_tokens: int
    """What came back."""
    cache_read_tokens: int
    """What of the input came from the cache of the provider."""
    cache_write_tokens: int
    """What of the input went into it."""
    cost: str | None
    """US dollars, as a decimal number."""
    duration_us: int
    """How long it took, in microseconds."""
    started_at: int
    """When it was sent."""
    kind: RequestKind = 'answer'
    """What its answer was for. Every kind but `failed` counts as a request in the usage of a version."""


class CallRecord(NamedTuple):
    """One tool call: an entry of the ledger."""

    run_id: str
    """The run."""
    response_id: str
    """The message that asked for it. Ids of calls repeat, within a conversation and even within a run."""
    tool_call_id: str
    """Its id in that message."""
    tool_name: str
    """The tool."""
    arguments: str
    """As the model wrote them."""
    effect: str
    """`read`, `write` or `external`; `external` where the tool does not say."""
    status: CallStatus
    """What is known of it."""
    result: Json | None
    """What it returned, until a message has it."""
    tree: str | None
    """The digest of the tree of files afterwards; `None` if it is not known, as of a call that only reads."""
    error: str | None
    """The class of the error of a failed one."""
    started_at: int
    """When it began."""
    ended_at: int | None
    """When it ended; `None` where that is not known."""


class DelegationRecord(NamedTuple):
    """A tool call that another conversation works on."""

    parent_run_id: str
    """The run that made the call."""
    response_id: str
    """The message that asked for it."""
    tool_call_id: str
    """The call."""
    child_conversation_id: str
    """On the wire: `sub_agent_thread_id`."""
    subagent: str
    """The name that the subagent was called by."""
    intent: str
    """What the subagent was asked to do."""
    arguments: str
    """Those of the tool call."""
    created_at: int
    """When it was made."""
