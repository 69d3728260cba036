"""What a turn tells its watchers: the screen, and whoever reads `--json`.

With `--json` each event is one line: a JSON object whose `type` says which of these it is. The last one is `result`.
Readers should skip types and fields that they do not know: new ones may come.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue, TypeAdapter

from pydantic_deep.approvals import ApprovalView
from pydantic_deep.todos import Todo

Status: TypeAlias = Literal['done', 'failed', 'no_model', 'limit', 'paused', 'interrupted', 'suspended']
"""How a turn ended: with an answer, with an error, without a model that answers, with its budget used up, waiting for
approvals, stopped by the person, or without an end in the store."""

DecisionKind: TypeAlias = Literal['approve', 'edit', 'deny', 'respond']
"""What a person may answer: the call runs, it runs with other arguments, it does not run, or the person answers in
the place of the tool."""

Outcome: TypeAlias = Literal['success', 'failed', 'denied', 'interrupted', 'retried']
"""How a tool call ended; `retried` asks the model to call again with other arguments."""


BudgetEventKind: TypeAlias = Literal['warning', 'last_answer', 'unknown']
"""What is told of a budget: that much of it is used, and the model knows; that there is room for one answer more,
without tools; or that an answer could not be counted."""

BudgetMeasure: TypeAlias = Literal['tokens', 'cost']
"""What a budget limits: tokens, sent and written together, or US dollars."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a turn has used so far."""

    requests: int = 0
    """Answers of the model."""
    tool_calls: int = 0
    """Tool calls that succeeded."""
    input_tokens: int = 0
    """Tokens sent, over all requests, cached ones included."""
    output_tokens: int = 0
    """Tokens that the model wrote."""


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """A file that differs from what it was before the turn. Lines that only moved do not count."""

    path: str
    """The absolute path in the directory, which is `/`."""
    change: Literal['created', 'changed', 'removed']
    """What became of it."""
    added_lines: int | None
    """How many lines it has that it did not have; `None` if a command changed it, and what it held is not known."""
    removed_lines: int | None
    """How many lines it had that it does not have; `None` likewise."""


@dataclass(frozen=True, kw_only=True)
class Approval:
    """A tool call that waits for a person."""

    id: str
    """The id of the call."""
    path: list[str]
    """The subagents that lead to it, by name; empty for a call of the agent itself."""
    tool: str
    """The name of the tool."""
    args: dict[str, JsonValue]
    """All arguments, for a program."""
    view: ApprovalView
    """What a person is shown of the call: all of it, escaped, with a preview and the digest that names it."""


@dataclass(frozen=True, kw_only=True)
class StartEvent:
    """A turn begins."""

    type: Literal['start'] = 'start'
    task: str
    """What the person wants."""
    directory: str
    """Where the agent works, as the person wrote it."""
    model: str
    """The name of the model."""


@dataclass(frozen=True, kw_only=True)
class TextEvent:
    """A piece of what the model says: append it to the piece before."""

    type: Literal['text'] = 'text'
    text: str
    """The piece, never empty."""


@dataclass(frozen=True, kw_only=True)
class ToolCallEvent:
    """The model calls a tool, that of the agent or that of a subagent."""

    type: Literal['tool_call'] = 'tool_call'
    id: str
    """The id of the call; that of a subagent's follows the id of its `task` call and a slash."""
    tool: str
    """The name of the tool."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to it, by name; empty for a call of the agent itself."""
    args: dict[str, JsonValue]
    """The arguments; those that are no JSON object stand under `INVALID_JSON`."""


@dataclass(frozen=True, kw_only=True)
class ToolResultEvent:
    """A tool call ended."""

    type: Literal['tool_result'] = 'tool_result'
    id: str
    """The id of the call; that of a subagent's follows the id of its `task` call and a slash."""
    tool: str
    """The name of the tool."""
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to it, by name; empty for a call of the agent itself."""
    outcome: Outcome
    """How it ended."""
    text: str
    """What the model is told."""
    exit_code: int | None = None
    """With which code a command ended; `None` for other tools, and where it did not end by itself."""


@dataclass(frozen=True, kw_only=True)
class ApprovalEvent:
    """A call waits for a person: one event for each, all of them before the first answer."""

    type: Literal['approval'] = 'approval'
    approval: Approval
    """The call."""
    has_changed: bool = False
    """Whether it was answered already and waits again, because a file is not as it was shown."""


@dataclass(frozen=True, kw_only=True)
class ApprovalAnswerEvent:
    """A call that waited was answered. The answers to all calls come together, when the last one is given.

    Where somebody else was faster, that answer comes after the one that was given here, and counts.
    """

    type: Literal['approval_answer'] = 'approval_answer'
    id: str
    """The id of the call."""
    decision: DecisionKind
    """What was decided."""
    by: Literal['person', 'option']
    """Whose decision it was: a person's, or that of `--approvals`."""
    reason: str | None = None
    """What the model is told of a call that was denied."""
    args: dict[str, JsonValue] | None = None
    """The arguments that a person gave in place of the model's."""
    faster: str | None = None
    """Who had answered it elsewhere before; `None` for an answer that was given here."""


@dataclass(frozen=True, kw_only=True)
class TodosEvent:
    """The plan changed: the whole list."""

    type: Literal['todos'] = 'todos'
    todos: list[Todo]
    """All of them, in the order of the plan."""


@dataclass(frozen=True, kw_only=True)
class FileEvent:
    """A file changed: how it differs now from what it was before the turn."""

    type: Literal['file'] = 'file'
    file: FileChange
    """The file and how it differs."""


@dataclass(frozen=True, kw_only=True)
class UsageEvent:
    """The model answered: what the turn has used so far."""

    type: Literal['usage'] = 'usage'
    usage: Usage
    """The sums of the turn, not those of one request."""


@dataclass(frozen=True, kw_only=True)
class SummarizedEvent:
    """The beginning of the conversation was replaced by a summary, because it grew too long. The agent can look all of
    it up.
    """

    type: Literal['summarized'] = 'summarized'
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to the conversation, by name; empty for that of the agent itself."""
    reason: str
    """Why: `tokens`, `messages`, `fraction`, or `overflow` where the provider refused a request as too long."""
    replaced_messages: int
    """How many messages the summary stands for."""
    tokens_before: int
    """What the next request would have taken, as far as it is known."""
    tokens_after: int
    """What the conversation takes now."""
    is_plain: bool
    """Whether no model could write the summary, and it is only a list of what must not be forgotten."""
    error: str | None
    """Why no model could; `None` where one did."""


@dataclass(frozen=True, kw_only=True)
class RetriedEvent:
    """The model did not answer, or not to the end, and is asked again."""

    type: Literal['retried'] = 'retried'
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to who asks, by name; empty for the agent itself."""
    attempt: int
    """The number of the attempt that follows; the first was 1."""
    attempts: int
    """How many there are at most."""
    reason: str
    """Why the last one failed."""
    delay_seconds: float
    """How long is waited before it."""
    void_text: str
    """What the failed attempt had said in events `text`: take it from the end of what was said, the answer begins anew."""


@dataclass(frozen=True, kw_only=True)
class BudgetEvent:
    """The budget of the turn comes to its end, or cannot be held because something of it is not known."""

    type: Literal['budget'] = 'budget'
    path: list[str] = field(default_factory=list[str])
    """The subagents that lead to whom it concerns, by name; empty for the agent itself."""
    kind: BudgetEventKind
    """What is to be told."""
    measure: BudgetMeasure
    """What is limited."""
    limit: int | float | None
    """The limit; `None` for `unknown`."""
    used: int | float | None
    """What is used of it; `None` for `unknown`."""
    model: str | None
    """For `unknown`, whose answer could not be counted, if that is known."""


@dataclass(frozen=True, kw_only=True)
class ResultEvent:
    """The turn ended."""

    type: Literal['result'] = 'result'
    status: Status
    """How it ended."""
    output: str | None
    """The answer, in Markdown; `None` if there is none."""
    error: str | None
    """What went wrong and what to do, in a sentence or two; `None` for `done`."""
    usage: Usage
    """What the turn has used."""
    files: list[FileChange]
    """Every file that differs from what it was before the turn, by path."""
    has_all_files: bool = True
    """Whether `files` names all of them; `false` if a command ran in a directory that is too large to be looked through."""
    todos: list[Todo]
    """The plan as it is at the end."""
    seconds: float
    """How long the turn took."""
    pending: list[Approval] = field(default_factory=list[Approval])
    """The calls that wait for a person, if the status is `paused`."""
    version: str | None = None
    """The version that the turn ended with, to go on from: `None` if nothing is kept."""
    store: str | None = None
    """The URL of the store that has it."""
    is_in_directory: bool = True
    """Whether the agent worked in the directory; `false` if it worked on a copy, which `checkout` puts there."""
    has_files: bool = True
    """Whether the version has the files; `false` if the directory is too large for that."""


Event: TypeAlias = Annotated[
    StartEvent
    | TextEvent
    | ToolCallEvent
    | ToolResultEvent
    | ApprovalEvent
    | ApprovalAnswerEvent
    | TodosEvent
    | FileEvent
    | UsageEvent
    | SummarizedEvent
    | RetriedEvent
    | BudgetEvent
    | ResultEvent,
    Field(discriminator='type'),
]
"""Any of them."""

EVENTS: TypeAdapter[Event] = TypeAdapter(Event)
"""Reads and writes events."""


def render_json(event: Event) -> str:
    """Return the event as one line of JSON, in ASCII: no text in it can drive a terminal or break a pipe."""
    return json.dumps(EVENTS.dump_python(event, mode='json'))
