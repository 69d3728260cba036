"""What a stream says, whoever speaks: a run of ours, or a provider whose stream is passed on.

One union, `StreamEvent`. Decoders make events of a provider's frames, encoders make frames of events, and a run's own
events become these. Readers should skip types and fields that they do not know: new ones may come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue, TypeAdapter

from pydantic_deep.approvals import ApprovalView
from pydantic_deep.todos import Todo

FinishReason: TypeAlias = Literal['stop', 'length', 'content_filter', 'tool_call', 'error']
"""Why a model ended its answer, in pydantic-ai's words; of a run, `tool_call` means that calls wait."""

RunStatus: TypeAlias = Literal['complete', 'awaiting_approval', 'interrupted', 'failed', 'suspended']
"""What became of a run, in the words of a version's state. A `suspended` run has no end in the store: it can be resumed
or cancelled."""

Outcome: TypeAlias = Literal['success', 'failed', 'denied', 'interrupted', 'retried']
"""How a tool call ended; `retried` asks the model to call again with other arguments."""


@dataclass(frozen=True, kw_only=True)
class StartEvent:
    """A stream begins."""

    type: Literal['start'] = 'start'
    id: str | None = None
    """The provider's id of the answer, or the id of the run."""
    model: str | None = None
    """The name of the model, or of the agent that answers."""
    conversation_id: str | None = None
    """The conversation of a run."""
    session_id: str | None = None
    """The caller's own id, as it was given."""


@dataclass(frozen=True, kw_only=True)
class TextEvent:
    """A piece of text: append it to the piece before."""

    type: Literal['text'] = 'text'
    text: str
    """The piece, never empty."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to who speaks, by name; empty for the agent itself."""


@dataclass(frozen=True, kw_only=True)
class ThinkingEvent:
    """A piece of what the model thinks."""

    type: Literal['thinking'] = 'thinking'
    text: str
    """The piece; empty where the provider sends only a signature."""
    signature: str | None = None
    """What the provider wants back with it."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to who thinks."""


@dataclass(frozen=True, kw_only=True)
class ToolCallDeltaEvent:
    """A piece of a tool call that the model is writing. A whole `ToolCallEvent` follows it."""

    type: Literal['tool_call_delta'] = 'tool_call_delta'
    index: int
    """Which call of the answer, from 0: pieces of several may come in turns."""
    id: str | None = None
    """The id of the call, in its first piece."""
    name: str | None = None
    """The name of the tool, in its first piece."""
    args: str = ''
    """A piece of the arguments: append it to the piece before, without looking at it."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to who calls."""


@dataclass(frozen=True, kw_only=True)
class ToolCallEvent:
    """The model has called a tool."""

    type: Literal['tool_call'] = 'tool_call'
    id: str
    """The id of the call; that of a subagent's follows the id of its `task` call and a slash."""
    name: str
    """The name of the tool."""
    args: str
    """The arguments as the model wrote them, JSON unless it made a mistake."""
    index: int | None = None
    """Which call of the answer, from 0, where its pieces were told."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to who calls."""
    intent: str | None = None
    """Of a delegation: the task, in the model's words."""
    sub_agent_thread_id: str | None = None
    """Of a delegation: the conversation of the subagent, where a store keeps it."""


@dataclass(frozen=True, kw_only=True)
class ToolResultEvent:
    """A tool call ended. Hidden from people who only read the answer, unless they ask."""

    type: Literal['tool_result'] = 'tool_result'
    id: str
    """The id of the call."""
    name: str
    """The name of the tool."""
    outcome: Outcome
    """How it ended."""
    content: str
    """What the model is told."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to who called."""
    sub_agent_thread_id: str | None = None
    """Of a delegation: the conversation of the subagent, which is known when it has ended."""


@dataclass(frozen=True, kw_only=True)
class NoticeEvent:
    """Something to show while tools run; no part of the answer."""

    type: Literal['notice'] = 'notice'
    text: str
    """A sentence."""


@dataclass(frozen=True, kw_only=True)
class Approval:
    """A call that waits for a person."""

    id: str
    """What an answer names: the `id` of the `PendingApproval`."""
    path: list[str]
    """The subagents that lead to it, by name."""
    tool: str
    """The name of the tool."""
    args: dict[str, JsonValue]
    """All arguments, for a program."""
    view: ApprovalView
    """What a person is shown of the call: all of it, escaped, with a preview and the digest that names it."""
    decisions: list[str] = field(default_factory=lambda: ['approve', 'edit', 'deny'])
    """Which answers it takes."""


@dataclass(frozen=True, kw_only=True)
class ApprovalRequiredEvent:
    """Calls wait for a person. The stream ends; an answer begins another."""

    type: Literal['approval_required'] = 'approval_required'
    approvals: list[Approval]
    """All that wait, those of subagents included."""


@dataclass(frozen=True, kw_only=True)
class TodosEvent:
    """The plan changed: the whole list."""

    type: Literal['todos'] = 'todos'
    todos: list[Todo]
    """All of them, in the order of the plan."""


@dataclass(frozen=True, kw_only=True)
class FileEvent:
    """A file changed."""

    type: Literal['file'] = 'file'
    path: str
    """Its absolute path."""
    change: Literal['written', 'removed']
    """What became of it."""


@dataclass(frozen=True, kw_only=True)
class StatusEvent:
    """Something happened to the run that is no part of the answer: a summary, a retry, a budget."""

    type: Literal['status'] = 'status'
    kind: str
    """What: `summarized`, `retried`, `budget`, or the name of another capability's event."""
    text: str
    """A sentence about it."""
    void_text: str = ''
    """Of a retry: what was said and does not count. Take it from the end of the text."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to whom it concerns."""


@dataclass(frozen=True, kw_only=True)
class UsageEvent:
    """What has been used so far: each such event replaces the one before."""

    type: Literal['usage'] = 'usage'
    input_tokens: int = 0
    """Sent, cached ones included."""
    output_tokens: int = 0
    """Written by the model."""
    cache_read_tokens: int = 0
    """Sent and found in the provider's cache."""
    cache_write_tokens: int = 0
    """Sent and written to the provider's cache."""
    requests: int = 0
    """Answers of the model."""


@dataclass(frozen=True, kw_only=True)
class ErrorEvent:
    """Something failed. It is never told as a normal end."""

    type: Literal['error'] = 'error'
    kind: str
    """What kind of failure, in snake case: `provider_error`, `truncated`, `malformed`, `http_error`, `run_failed`,
    `limit_exceeded`, `cancelled`, …"""
    message: str
    """What happened and what to do, without secrets."""
    status: int | None = None
    """The HTTP status that fits, where one does."""


@dataclass(frozen=True, kw_only=True)
class EndEvent:
    """The last event of a stream that ended as it should, and of a run whatever became of it."""

    type: Literal['end'] = 'end'
    finish_reason: FinishReason = 'stop'
    """Why it ended."""
    status: RunStatus | None = None
    """What became of the run; `None` in a provider's stream."""
    version_id: str | None = None
    """The version that the run ended with, where a store keeps it."""
    output: str | None = None
    """The answer as text, JSON if it is structured; `None` in a provider's stream, and where there is none."""


StreamEvent: TypeAlias = Annotated[
    StartEvent
    | TextEvent
    | ThinkingEvent
    | ToolCallDeltaEvent
    | ToolCallEvent
    | ToolResultEvent
    | NoticeEvent
    | ApprovalRequiredEvent
    | TodosEvent
    | FileEvent
    | StatusEvent
    | UsageEvent
    | ErrorEvent
    | EndEvent,
    Field(discriminator='type'),
]
"""Any of them."""

STREAM_EVENTS: TypeAdapter[StreamEvent] = TypeAdapter(StreamEvent)
"""Reads and writes events as JSON."""
