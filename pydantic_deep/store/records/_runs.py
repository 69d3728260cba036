"""Records of runs, requests, tool calls and delegations."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from ._basics import Json

RequestKind: TypeAlias = Literal['answer', 'rejected', 'interrupted', 'skipped', 'summary', 'failed', 'superseded']
"""Use of a response. `answer`: the run continued with it. `rejected`: a hook or validator returned it to the model.
`interrupted`: it was cut off, as by a cancelled stream. `skipped`: a capability supplied it without a request to the
model. `summary`: it summarizes a history. `failed`: it was billed but unusable, such as that of a model that a fallback
replaced. `superseded`: it was lost in a crash, and the request was repeated.
"""


RunState: TypeAlias = Literal['running', 'complete', 'awaiting_approval', 'interrupted', 'failed']
"""State of a run. `interrupted`: it was cancelled, or its process crashed and it was recovered."""


CallStatus: TypeAlias = Literal['started', 'done', 'failed', 'deferred', 'superseded']
"""Status of a tool call. `started`: it may have run. `done`: it returned a result. `failed`: it ran without a result.
`deferred`: it is pending. `superseded`: it may have run in a process that crashed, and a later run repeats it.
"""


class RunRecord(NamedTuple):
    """One run of an agent or a subagent."""

    id: str
    """A UUIDv7, unique in the store."""
    conversation_id: str
    """The conversation that the run continues."""
    base_id: str | None
    """The version that the run started from."""
    agent_name: str
    """The name of the agent that runs."""
    attempt_of: str | None
    """The run of a crashed process that this run resumes."""
    parent_run_id: str | None
    """The run that started this one by a tool call."""
    state: RunState
    """`running`, or how the run ended."""
    owner: str | None
    """The open store that works on the run while it is `running`."""
    prompt: bytes | None
    """The user's prompt as JSON, until a message contains it."""
    options: Json
    """A JSON object with the other options of the run, for its recovery."""
    usage: Json
    """A JSON object with the usage of this run alone."""
    cost: str | None
    """US dollars, as a decimal number; `None` if no price is known."""
    error: Json | None
    """A JSON object with the `type` and `message` of the failure, and the `event` that readers get."""
    trace_id: str | None
    """Id of the trace, 32 hexadecimal digits."""
    started_at: int
    """When the run was recorded, before its first request."""
    ended_at: int | None
    """When the run ended; `None` while it is running."""


class RequestRecord(NamedTuple):
    """A request to a model with its response, or a response that a capability supplied in its place."""

    run_id: str
    """The run that sent the request."""
    number: int
    """Number within the run, from 1."""
    response_id: str
    """Id of the response message; an id of its own if no message of a version contains the response."""
    model: str
    """The model that responded, as `provider:name`."""
    model_settings: Json
    """A JSON object with the effective settings."""
    parameters: str | None
    """Digest of the asset with the request parameters: tools, instructions, output mode."""
    digest: str
    """Digest of the whole request in its canonical form."""
    message_digests: str | None
    """Digest of the asset with everything that cannot be derived from the history: the prompt if a capability rewrote
    it, and the messages that were sent if they differ from the history. `None` if the history is sufficient.
    """
    input_tokens: int
    """Number of input tokens, as the provider counts."""
    output_tokens: int
    """Number of output tokens."""
    cache_read_tokens: int
    """Number of input tokens read from the provider's cache."""
    cache_write_tokens: int
    """Number of input tokens written to it."""
    cost: str | None
    """US dollars, as a decimal number."""
    duration_us: int
    """Time until the whole response was received, in microseconds."""
    started_at: int
    """When the request was sent."""
    kind: RequestKind = 'answer'
    """Use of the response. Every kind but `failed` counts as a request in the usage of a version."""


class CallRecord(NamedTuple):
    """One tool call, as recorded in the ledger."""

    run_id: str
    """The run that made the call."""
    response_id: str
    """The response with the call. Ids of calls repeat, within a conversation and even within a run."""
    tool_call_id: str
    """Id of the call within that response."""
    tool_name: str
    """The name of the called tool."""
    arguments: str
    """The arguments as the model wrote them."""
    effect: str
    """`read`, `write` or `external`; `external` if the tool does not declare its effect."""
    status: CallStatus
    """The progress of the call."""
    result: Json | None
    """The result, until a message contains it."""
    tree: str | None
    """Digest of the file tree after the call; `None` if unknown, as for a call that only reads."""
    error: str | None
    """Class of the error, if the call failed."""
    started_at: int
    """When the call was recorded, before it ran."""
    ended_at: int | None
    """When the call ended; `None` if unknown."""


class DelegationRecord(NamedTuple):
    """A tool call that delegates to a conversation of a subagent."""

    parent_run_id: str
    """The run that made the call."""
    response_id: str
    """The response with the call."""
    tool_call_id: str
    """Id of the call within that response."""
    child_conversation_id: str
    """The subagent's conversation; `sub_agent_thread_id` in the HTTP API."""
    subagent: str
    """The name under which the subagent was called."""
    intent: str
    """The task given to the subagent."""
    arguments: str
    """Arguments of the tool call."""
    created_at: int
    """When the delegation was recorded."""
