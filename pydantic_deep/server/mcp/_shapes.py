"""Arguments and results of the tools, and the JSON Schemas of arguments. They are short: each client pays for them."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Literal

from mcp_types import CallToolResult, TextContent
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from pydantic_deep.server.routes._parameters import CURSOR
from pydantic_deep.server.schemas._approvals import PendingCall
from pydantic_deep.server.schemas._fields import Id, Name, Reason
from pydantic_deep.store import VersionKind, VersionState
from pydantic_deep.views import RunState

WAIT_SECONDS = 50
"""Default time that a tool waits for a run. Several clients give up after 60 seconds without a result."""

MAX_WAIT_SECONDS = 3600
"""Maximum time that a tool waits for a run."""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra='forbid', use_attribute_docstrings=True)


class _Waiting(_Arguments):
    wait_seconds: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = WAIT_SECONDS
    """How long to wait for the end of the run."""


class RunArguments(_Waiting):
    """Arguments of `run`."""

    prompt: Annotated[str, Field(min_length=1)]
    """The task."""
    agent: Name | None = None
    """The agent of a new conversation. Required if there are several."""
    conversation: Id | None = None
    """The conversation to continue. Default: a new one."""
    from_version: Id | None = None
    """The version to start from. Default: the head of the conversation."""
    branch: Name | None = None
    """A name for a new branch."""


class RunIdArguments(_Waiting):
    """Arguments of tools that wait for a run."""

    run: Id
    """The id of the run."""


class CancelArguments(_Arguments):
    """Arguments of `cancel_run`."""

    run: Id
    """The id of the run."""


class ListApprovalsArguments(_Arguments):
    """Arguments of `list_approvals`."""

    conversation: Id | None = None
    """Only approvals of this conversation."""


class AnswerArguments(_Waiting):
    """Arguments of `answer_approval`."""

    approval: Id
    """The id of the approval."""
    decision: Literal['approve', 'edit', 'deny', 'respond']
    """`edit` runs the call with `args`; `respond` returns `content` instead of running it."""
    digest: Annotated[str, Field(min_length=64, max_length=64)] | None = None
    """The digest of the approval as the person saw it. Required except for `deny`."""
    args: dict[str, Any] | None = None
    """For `edit`: the complete arguments."""
    content: Any = None
    """For `respond`: the result."""
    reason: Reason | None = None
    """The reason for the decision."""


class LogArguments(_Arguments):
    """Arguments of `log`."""

    conversation: Id | None = None
    """List the versions of this conversation. Default: list conversations."""
    steps: bool = False
    """Include versions within turns."""
    limit: Annotated[int, Field(ge=1, le=200)] = 20
    """Maximum number of items."""
    cursor: Annotated[str, Field(pattern=CURSOR)] | None = None
    """The cursor of the previous page."""


class DiffArguments(_Arguments):
    """Arguments of `diff`."""

    version: Id
    """The version."""
    to: Id | None = None
    """The version to compare with. Default: compare the parent with `version`."""


class RewindArguments(_Arguments):
    """Arguments of `rewind`."""

    conversation: Id
    """The conversation."""
    version: Id
    """The version from which the next turn continues."""


class RunResult(BaseModel):
    """A run."""

    run: str
    conversation: str
    agent: str
    state: RunState
    version: str | None
    output: str | None
    error: str | None
    approvals: list[PendingCall]
    next: str | None
    """How to continue."""


class Approvals(BaseModel):
    """Pending approvals."""

    approvals: list[PendingCall]


class Answered(BaseModel):
    """An approval after its decision, and the run that resumed with it."""

    approval: str
    status: str
    run: RunResult | None
    next: str | None
    """How to continue."""


class LoggedConversation(BaseModel):
    """A conversation."""

    conversation: str
    agent: str
    name: str | None
    head: str | None
    created_at: AwareDatetime


class LoggedVersion(BaseModel):
    """A version."""

    version: str
    parent: str | None
    run: str | None
    kind: VersionKind
    state: VersionState
    branch: str
    prompt: str | None
    files_changed: list[str] | None
    is_head: bool
    created_at: AwareDatetime


class Log(BaseModel):
    """Conversations or versions, newest first."""

    conversations: list[LoggedConversation] | None = None
    versions: list[LoggedVersion] | None = None
    active_runs: list[str] | None = None
    """The runs of the conversation that have not ended, oldest first, on the first page."""
    cursor: str | None
    """The cursor of the next page."""


class ChangedFile(BaseModel):
    """A file that differs."""

    path: str
    kind: str
    diff: str | None
    """A unified diff; absent if the file is not text, or the diffs are too long."""


class DiffResult(BaseModel):
    """The differences from one version to another."""

    before: str
    after: str
    files: list[ChangedFile]
    messages_added: int
    messages_removed: int
    note: str | None
    """What the result omits."""


class Rewound(BaseModel):
    """A conversation and its new head."""

    conversation: str
    head: str


def tool_result(value: BaseModel) -> CallToolResult:
    """Return a result as clients receive it: as text for the model, and structured."""
    return CallToolResult(
        content=[TextContent(text=value.model_dump_json(exclude_none=True))],
        structured_content=value.model_dump(mode='json', exclude_none=True),
    )


@cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of arguments, as short as clients need it.

    It has no titles, no null, since arguments may be omitted, and no limits of texts, which the error for an invalid
    argument names.
    """
    schema = model.model_json_schema()
    fields = {name: _compact(field) for name, field in schema['properties'].items()}
    required = {'required': schema['required']} if 'required' in schema else {}
    return {'type': 'object', 'properties': fields, **required, 'additionalProperties': False}


def _compact(field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an argument."""
    kept = {name: value for name, value in field.items() if name not in _UNSAID}
    if kept.get('default', _NULL) is None:
        del kept['default']
    others: list[dict[str, Any]] = [option for option in field.get('anyOf', ()) if option != _NULL]
    option = {name: value for option in others for name, value in option.items() if name not in _UNSAID}
    return {**option, **kept}


_UNSAID: Final = frozenset({'title', 'anyOf', 'minLength', 'maxLength', 'pattern'})
_NULL: Final = {'type': 'null'}
