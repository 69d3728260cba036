"""The events of a stream, whether of one of our runs or of a relayed provider stream.

All readers share one union, `StreamEvent`: the HTTP API, the command line with and without `--json`, the web page, and
the encoders of other protocols. `RunEvents` translates the events of pydantic-ai, and decoders translate the frames of
providers. Readers should ignore unknown types and fields: later releases may add some.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue, TypeAdapter
from pydantic_ai.usage import RunUsage

from pydantic_deep.approvals import ApprovalView, DecisionKind
from pydantic_deep.budgets import Measure, Scope
from pydantic_deep.todos import Todo

FinishReason: TypeAlias = Literal['stop', 'length', 'content_filter', 'tool_call', 'error']
"""Why a model ended its response, in pydantic-ai's terms. For a run, `tool_call` means that calls are pending."""

RunStatus: TypeAlias = Literal['complete', 'awaiting_approval', 'interrupted', 'failed', 'suspended']
"""How a run ended, in the terms of a version's state. A `suspended` run has no end in the store: it can be resumed or
cancelled."""

Outcome: TypeAlias = Literal['success', 'failed', 'denied', 'interrupted', 'retried']
"""How a tool call ended; `retried` asks the model to call again with other arguments."""

FileChange: TypeAlias = Literal['created', 'changed', 'removed']
"""How a file differs from its earlier state."""

BudgetEventKind: TypeAlias = Literal['warning', 'last_answer', 'unknown']
"""`warning`: most of a limit is used, and the model was warned. `last_answer`: one more response fits, without tools.
`unknown`: a response could not be counted."""


@dataclass(frozen=True, kw_only=True)
class StartEvent:
    """The first event of a stream."""

    type: Literal['start'] = 'start'
    id: str | None = None
    """The provider's id of the response, or the id of the run."""
    model: str | None = None
    """The name of the model, or of the agent."""
    prompt: str | None = None
    """The prompt of the run. Set by the command line only."""
    directory: str | None = None
    """The absolute path of the directory that the agent works in. Set by the command line only."""
    conversation_id: str | None = None
    """The id of the conversation that the run belongs to."""
    session_id: str | None = None
    """The session id that the caller passed, unchanged."""


@dataclass(frozen=True, kw_only=True)
class TextEvent:
    """A piece of text, to append to the previous piece."""

    type: Literal['text'] = 'text'
    text: str
    """The text to append, never empty."""
    path: list[str] = field(default_factory=list[str])
    """Names of the subagents that lead to the author of the text. Empty for the agent itself."""


@dataclass(frozen=True, kw_only=True)
class ThinkingEvent:
    """A piece of the model's thinking."""

    type: Literal['thinking'] = 'thinking'
    text: str
    """The text to append. Empty if the provider sends only a signature."""
    signature: str | None = None
    """The provider's signature, which must be sent back to it with the thinking."""
    path: list[str] = field(default_factory=list[str])
    """Names of the subagents that lead to the author of the thinking."""


@dataclass(frozen=True, kw_only=True)
class ToolCallDeltaEvent:
    """A piece of a tool call that the model is writing. A complete `ToolCallEvent` follows it."""

    type: Literal['tool_call_delta'] = 'tool_call_delta'
    index: int
    """Position of the call in the response, from 0. Pieces of several calls may be interleaved."""
    id: str | None = None
    """The id of the call. Set in its first piece."""
    name: str | None = None
    """The name of the tool. Set in the first piece of the call."""
    args: str = ''
    """A piece of the arguments. Append it to the previous piece without parsing it."""
    path: list[str] = field(default_factory=list[str])
    """Names of the subagents that lead to the caller."""


@dataclass(frozen=True, kw_only=True)
class ToolCallEvent:
    """The model called a tool."""

    type: Literal['tool_call'] = 'tool_call'
    id: str
    """The id of the call. A subagent's call is prefixed with the id of its `task` call and a slash."""
    name: str
    """The name of the called tool."""
    args: str
    """The arguments as the model wrote them: JSON, unless the model made a mistake."""
    index: int | None = None
    """Position of the call in the response, from 0, if its pieces were emitted before."""
    path: list[str] = field(default_factory=list[str])
    """Names of the subagents that lead to the caller."""
    intent: str | None = None
    """For a delegation: the task in the model's words."""
    sub_agent_thread_id: str | None = None
    """For a delegation: the conversation of the subagent, if a store persists it."""


@dataclass(frozen=True, kw_only=True)
class ToolResultEvent:
    """A tool call ended. Readers receive it only on request."""

    type: Literal['tool_result'] = 'tool_result'
    id: str
    """The id of the call that ended."""
    name: str
    """The name of the called tool."""
    outcome: Outcome
    """Whether the call succeeded, and if not, why."""
    content: str
    """The result as the model receives it."""
    exit_code: int | None = None
    """The exit code of a command. `None` for other tools and for a command that was stopped."""
    path: list[str] = field(default_factory=list[str])
    """Names of the subagents that lead to the caller."""
    sub_agent_thread_id: str | None = None
    """For a delegation: the conversation of the subagent, known once the subagent has ended."""


@dataclass(frozen=True, kw_only=True)
class NoticeEvent:
    """A text to display while tools run. It is not part of the response."""

    type: Literal['notice'] = 'notice'
    text: str
    """The sentence to display."""


@dataclass(frozen=True, kw_only=True)
class Approval:
    """A tool call that is pending until a person decides."""

    id: str
    """The id to answer with: the `id` of the `PendingApproval`."""
    path: list[str]
    """Names of the subagents that lead to the call."""
    tool: str
    """The name of the called tool."""
    args: dict[str, JsonValue]
    """All arguments, unescaped, for programs."""
    view: ApprovalView
    """The call as a person sees it: complete and escaped, with a preview and the digest that identifies it."""
    decisions: list[str] = field(default_factory=lambda: ['approve', 'edit', 'deny'])
    """The decisions that the call accepts."""
    has_changed: bool = False
    """Whether the call was answered before and is pending again because a file changed after the person saw it."""


@dataclass(frozen=True, kw_only=True)
class ApprovalRequiredEvent:
    """Tool calls are pending until a person decides.

    Over HTTP, the stream ends, and the decisions start another run. The command line asks immediately if it can; the
    answers and the rest of the turn then follow.
    """

    type: Literal['approval_required'] = 'approval_required'
    approvals: list[Approval]
    """All pending calls, including those of subagents."""


@dataclass(frozen=True, kw_only=True)
class ApprovalAnswerEvent:
    """A pending call was answered. All answers are emitted together, after the last decision.

    If another person answered a call first, that answer follows the local one and takes effect.
    """

    type: Literal['approval_answer'] = 'approval_answer'
    id: str
    """The id of the answered approval."""
    decision: DecisionKind
    """The decision for this call."""
    by: Literal['person', 'option']
    """Whether a person or the `--approvals` option decided."""
    reason: str | None = None
    """For a denied call: the reason that the model receives."""
    args: dict[str, JsonValue] | None = None
    """For an edited call: the arguments that replace those of the model."""
    answered_by: str | None = None
    """Who answered first elsewhere. `None` for a local answer."""


@dataclass(frozen=True, kw_only=True)
class TodosEvent:
    """The plan changed."""

    type: Literal['todos'] = 'todos'
    todos: list[Todo]
    """The complete plan, in order."""


@dataclass(frozen=True, kw_only=True)
class FileEvent:
    """A file was created, changed or removed.

    The command line compares with the file before the turn. Elsewhere, the comparison is with the file before the call,
    and only calls that name a single file are reported: a command may change other files.
    """

    type: Literal['file'] = 'file'
    path: str
    """The absolute path of the file."""
    change: FileChange
    """Whether the file was created, changed or removed."""
    added_lines: int | None = None
    """The number of added lines, not counting moved lines. `None` if lines were not counted."""
    removed_lines: int | None = None
    """The number of removed lines, not counting moved lines. `None` if lines were not counted."""


@dataclass(frozen=True, kw_only=True)
class SummarizedEvent:
    """A summary replaced the beginning of the conversation. The agent can search the replaced messages."""

    type: Literal['summarized'] = 'summarized'
    reason: str
    """`tokens`, `messages`, `fraction`, or `overflow` if the provider refused a request as too long."""
    replaced_messages: int
    """The number of messages that the summary replaces."""
    tokens_before: int
    """The estimated size of the next request without the summary."""
    tokens_after: int
    """The estimated size of the shortened history."""
    is_plain: bool
    """Whether no model could write the summary, so that it only lists facts that must be preserved."""
    error: str | None = None
    """The exception that prevented a model from writing it: only its name over HTTP, elsewhere with its message."""
    path: list[str] = field(default_factory=list[str])
    """Names of the subagents that lead to the summarized conversation."""


@dataclass(frozen=True, kw_only=True)
class RetriedEvent:
    """A model request failed and will be retried."""

    type: Literal['retried'] = 'retried'
    attempt: int
    """The number of the next attempt. The first attempt was 1."""
    attempts: int
    """The maximum number of attempts."""
    reason: str
    """Why the last attempt failed, such as `rate limited (429)`."""
    delay_seconds: float
    """The delay before the next attempt."""
    void_text: str = ''
    """The text of the failed attempt, which is void: remove it from the end of the text so far."""
    path: list[str] = field(default_factory=list[str])
    """Names of the subagents that lead to the agent of the model."""


@dataclass(frozen=True, kw_only=True)
class BudgetEvent:
    """A budget is almost used, or a response could not be counted in it."""

    type: Literal['budget'] = 'budget'
    kind: BudgetEventKind
    """The condition that the event reports."""
    measure: Measure
    """The limited quantity: tokens, requests, cost in US dollars, or seconds."""
    scope: Scope | None = None
    """Whether the limit applies to the run or to the conversation. `None` for `unknown`."""
    limit: int | float | None = None
    """The limit. `None` for `unknown`."""
    used: int | float | None = None
    """The amount used so far. `None` for `unknown`."""
    model: str | None = None
    """For `unknown`: the model that gave the response."""
    path: list[str] = field(default_factory=list[str])
    """Names of the subagents that lead to the agent of the budget."""


@dataclass(frozen=True, kw_only=True)
class StatusEvent:
    """A capability event without a type of its own in this union, such as an event of a third party."""

    type: Literal['status'] = 'status'
    kind: str
    """The namespaced name of the event."""
    text: str
    """A sentence that describes the event."""
    path: list[str] = field(default_factory=list[str])
    """Names of the subagents that lead to the agent of the capability."""


@dataclass(frozen=True, kw_only=True)
class UsageEvent:
    """The usage of the run or the turn so far. Each usage event replaces the previous one."""

    type: Literal['usage'] = 'usage'
    input_tokens: int = 0
    """Tokens sent to the model, including cached tokens."""
    output_tokens: int = 0
    """Tokens that the model generated."""
    cache_read_tokens: int = 0
    """Sent tokens that were read from the provider's cache."""
    cache_write_tokens: int = 0
    """Sent tokens that were written to the provider's cache."""
    requests: int = 0
    """The number of model responses."""
    tool_calls: int = 0
    """The number of successful tool calls."""

    @classmethod
    def of(cls, usage: RunUsage) -> UsageEvent:
        """Return the event for the usage of a run. For the usage between two points, pass `after - before`."""
        return cls(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            requests=usage.requests,
            tool_calls=usage.tool_calls,
        )


@dataclass(frozen=True, kw_only=True)
class ErrorEvent:
    """A failure. A stream that fails never ends like one that succeeded."""

    type: Literal['error'] = 'error'
    kind: str
    """The kind of failure, such as `provider_error`, `unusable_model`, `truncated`, `malformed`, `http_error`,
    `run_failed`, `run_suspended`, `budget_exceeded`, `limit_exceeded`, `timed_out` or `cancelled`."""
    message: str
    """The cause and the remedy, without secrets."""
    status: int | None = None
    """The matching HTTP status, if any."""


@dataclass(frozen=True, kw_only=True)
class TurnWorkspace:
    """The directory and the store of a command line turn."""

    store: str | None
    """The URL of the store that contains the version. `None` if nothing is stored."""
    is_in_directory: bool
    """Whether the agent worked in the directory itself. If not, it worked on a copy: `checkout` writes its files."""
    has_files: bool
    """Whether the version contains the files. False if the directory is too large."""
    has_all_changes: bool
    """Whether `EndEvent.files` is complete. False if a command ran in a directory that is too large to scan."""


@dataclass(frozen=True, kw_only=True)
class EndEvent:
    """The last event of every run, and of every provider stream that was not cut.

    For a failed run, the preceding `error` event states the reason. Pending calls are in the last `approval_required`
    event.
    """

    type: Literal['end'] = 'end'
    finish_reason: FinishReason = 'stop'
    """Why the response ended."""
    status: RunStatus | None = None
    """How the run ended. `None` in a provider stream."""
    version_id: str | None = None
    """The version that the run ended with. `None` without a store."""
    output: str | None = None
    """The output of the run as text, or as JSON if structured. `None` without an output, and in a provider stream."""
    usage: UsageEvent | None = None
    """The usage of the run; from the command line, of the whole turn. `None` in a provider stream."""
    seconds: float | None = None
    """The duration of the turn. Set by the command line only."""
    files: list[FileEvent] | None = None
    """All files that differ from those before the turn, sorted by path. Set by the command line only."""
    todos: list[Todo] | None = None
    """The plan after the turn, even if the turn did not change it. Set by the command line only."""
    workspace: TurnWorkspace | None = None
    """The directory and the store. Set by the command line only."""


StreamEvent: TypeAlias = Annotated[
    StartEvent
    | TextEvent
    | ThinkingEvent
    | ToolCallDeltaEvent
    | ToolCallEvent
    | ToolResultEvent
    | NoticeEvent
    | ApprovalRequiredEvent
    | ApprovalAnswerEvent
    | TodosEvent
    | FileEvent
    | SummarizedEvent
    | RetriedEvent
    | BudgetEvent
    | StatusEvent
    | UsageEvent
    | ErrorEvent
    | EndEvent,
    Field(discriminator='type'),
]
"""Any event of a stream, discriminated by `type`."""

STREAM_EVENTS: TypeAdapter[StreamEvent] = TypeAdapter(StreamEvent)
"""Validates and serializes events."""
