"""The events of a stream: of a run of ours, or of a provider's stream that is passed on.

One union, `StreamEvent`, for every reader: the HTTP API, `--json` and the terminal of the command line, the page, and
the encoders of other protocols. `RunEvents` translates the events of pydantic-ai to these, decoders the frames of
providers. Readers should ignore types and fields that they do not know: later releases may add some.
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
"""Why a model ended its answer, in pydantic-ai's words; of a run, `tool_call` means that calls wait."""

RunStatus: TypeAlias = Literal['complete', 'awaiting_approval', 'interrupted', 'failed', 'suspended']
"""What became of a run, in the words of a version's state. A `suspended` run has no end in the store: it can be resumed
or cancelled."""

Outcome: TypeAlias = Literal['success', 'failed', 'denied', 'interrupted', 'retried']
"""How a tool call ended; `retried` asks the model to call again with other arguments."""

FileChange: TypeAlias = Literal['created', 'changed', 'removed']
"""What happened to a file."""

BudgetEventKind: TypeAlias = Literal['warning', 'last_answer', 'unknown']
"""`warning`: most of a limit is used, and the model was warned. `last_answer`: one more response fits, without tools.
`unknown`: a response could not be counted."""


@dataclass(frozen=True, kw_only=True)
class StartEvent:
    """A stream begins."""

    type: Literal['start'] = 'start'
    id: str | None = None
    """The provider's id of the answer, or the id of the run."""
    model: str | None = None
    """The name of the model, or of the agent that answers."""
    prompt: str | None = None
    """The prompt of the run; from the command line only."""
    directory: str | None = None
    """The directory that the agent works in, as the person wrote it; from the command line only."""
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
    """The result as the model receives it."""
    exit_code: int | None = None
    """The exit code of a command; `None` for other tools, and for a command that was stopped."""
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
    has_changed: bool = False
    """Whether it was answered before and is pending again, because a file is not as the person saw it."""


@dataclass(frozen=True, kw_only=True)
class ApprovalRequiredEvent:
    """Tool calls are pending until a person decides.

    Over HTTP the stream ends, and the decisions start another run. The command line asks at once if it can: then
    answers and the rest of the turn follow.
    """

    type: Literal['approval_required'] = 'approval_required'
    approvals: list[Approval]
    """All pending calls, those of subagents included."""


@dataclass(frozen=True, kw_only=True)
class ApprovalAnswerEvent:
    """A pending call was answered. The answers to all calls come together, after the last one is given.

    If somebody else answered a call first, that answer follows the one that was given here, and counts.
    """

    type: Literal['approval_answer'] = 'approval_answer'
    id: str
    """The id of the approval."""
    decision: DecisionKind
    """The decision."""
    by: Literal['person', 'option']
    """Whether a person decided, or the option `--approvals`."""
    reason: str | None = None
    """The reason that the model receives, if the call was denied."""
    args: dict[str, JsonValue] | None = None
    """The arguments that replace those of the model, if the call was edited."""
    answered_by: str | None = None
    """Who answered first elsewhere; `None` for an answer that was given here."""


@dataclass(frozen=True, kw_only=True)
class TodosEvent:
    """The plan changed: the whole list."""

    type: Literal['todos'] = 'todos'
    todos: list[Todo]
    """All of them, in the order of the plan."""


@dataclass(frozen=True, kw_only=True)
class FileEvent:
    """A file was created, changed or removed.

    The command line compares with the file before the turn. Elsewhere the comparison is with the file before the call,
    and only calls that name their one file are known: a command may change others.
    """

    type: Literal['file'] = 'file'
    path: str
    """The absolute path."""
    change: FileChange
    """What happened to it."""
    added_lines: int | None = None
    """The number of lines that it has and had not; `None` if they were not counted. A line that moved is none."""
    removed_lines: int | None = None
    """The number of lines that it had and has not, counted likewise."""


@dataclass(frozen=True, kw_only=True)
class SummarizedEvent:
    """The beginning of the conversation was replaced by a summary. The agent can search what was replaced."""

    type: Literal['summarized'] = 'summarized'
    reason: str
    """`tokens`, `messages`, `fraction`, or `overflow` if the provider refused a request as too long."""
    replaced_messages: int
    """The number of messages that the summary replaces."""
    tokens_before: int
    """The estimated size of the next request without the summary."""
    tokens_after: int
    """The size of the shorter history."""
    is_plain: bool
    """Whether no model could write the summary, so that it only lists facts that must be preserved."""
    error: str | None = None
    """The exception because of which no model could write it: only its name over HTTP, also its message elsewhere."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to the conversation."""


@dataclass(frozen=True, kw_only=True)
class RetriedEvent:
    """A request to the model failed, and is made again."""

    type: Literal['retried'] = 'retried'
    attempt: int
    """The number of the attempt that follows; the first one was 1."""
    attempts: int
    """The maximum number of attempts."""
    reason: str
    """Why the last attempt failed, such as `rate limited (429)`."""
    delay_seconds: float
    """The delay before the attempt that follows."""
    void_text: str = ''
    """The text of the failed attempt, which does not count: remove it from the end of the text so far."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to the model's agent."""


@dataclass(frozen=True, kw_only=True)
class BudgetEvent:
    """A budget is almost used, or a response could not be counted in it."""

    type: Literal['budget'] = 'budget'
    kind: BudgetEventKind
    """What happened."""
    measure: Measure
    """The limited amount: tokens, requests, cost in US dollars, or seconds."""
    scope: Scope | None = None
    """Whether the limit is for the run or for the conversation; `None` for `unknown`."""
    limit: int | float | None = None
    """The limit; `None` for `unknown`."""
    used: int | float | None = None
    """The used part of it; `None` for `unknown`."""
    model: str | None = None
    """The model that gave the response, for `unknown`."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to the budget's agent."""


@dataclass(frozen=True, kw_only=True)
class StatusEvent:
    """An event of a capability that has no type of its own here, such as one of a third party."""

    type: Literal['status'] = 'status'
    kind: str
    """The name of the event, with its namespace."""
    text: str
    """A sentence about it."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to the capability's agent."""


@dataclass(frozen=True, kw_only=True)
class UsageEvent:
    """The usage so far, of the run or the turn: each such event replaces the one before."""

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
    """Responses of models."""
    tool_calls: int = 0
    """Tool calls that succeeded."""

    @classmethod
    def of(cls, usage: RunUsage) -> UsageEvent:
        """Return the event with the usage of a run; subtract usages by `after - before`."""
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
    """Something failed. A stream that fails never ends like one that succeeded."""

    type: Literal['error'] = 'error'
    kind: str
    """The kind of failure, such as `provider_error`, `unusable_model`, `truncated`, `malformed`, `http_error`,
    `run_failed`, `run_suspended`, `budget_exceeded`, `limit_exceeded`, `timed_out` or `cancelled`."""
    message: str
    """What happened and what to do, without secrets."""
    status: int | None = None
    """The HTTP status that fits, where one does."""


@dataclass(frozen=True, kw_only=True)
class TurnWorkspace:
    """The directory and the store of a turn of the command line."""

    store: str | None
    """The URL of the store that has the version; `None` if nothing is stored."""
    is_in_directory: bool
    """Whether the agent worked in the directory itself. If not, it worked on a copy: `checkout` writes its files."""
    has_files: bool
    """Whether the version has the files; false if the directory is too large."""
    has_all_changes: bool
    """Whether `EndEvent.files` is complete; false if a command ran in a directory that is too large to be scanned."""


@dataclass(frozen=True, kw_only=True)
class EndEvent:
    """The last event of a provider's stream that was not cut, and of every run.

    Why a run failed is in the `error` event before it, and pending calls are in the last `approval_required` event.
    """

    type: Literal['end'] = 'end'
    finish_reason: FinishReason = 'stop'
    """Why the answer ended."""
    status: RunStatus | None = None
    """The state of the run; `None` in a provider's stream."""
    version_id: str | None = None
    """The version that the run ended with; `None` without a store."""
    output: str | None = None
    """The answer as text, JSON if it is structured; `None` if there is none, and in a provider's stream."""
    usage: UsageEvent | None = None
    """The usage of the run; of the whole turn, from the command line. `None` in a provider's stream."""
    seconds: float | None = None
    """The duration of the turn; from the command line only."""
    files: list[FileEvent] | None = None
    """All files that differ from those before the turn, by path; from the command line only."""
    todos: list[Todo] | None = None
    """The plan after the turn, also if the turn did not change it; from the command line only."""
    workspace: TurnWorkspace | None = None
    """The directory and the store; from the command line only."""


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
"""Any event of a stream; `type` says which."""

STREAM_EVENTS: TypeAdapter[StreamEvent] = TypeAdapter(StreamEvent)
"""Validates and serializes events."""
