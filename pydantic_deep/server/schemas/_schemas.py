"""The bodies of requests and answers about conversations, runs, versions, approvals and files."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from pydantic_deep._escapes import EscapedText
from pydantic_deep.approvals import ApprovalView, DiffView
from pydantic_deep.server.runs._server_run import ServedRunState
from pydantic_deep.store import ApprovalStatus, VersionKind, VersionState
from pydantic_deep.streaming import ErrorEvent
from pydantic_deep.todos import Todo

_ID = '019aa1b2-0000-7000-8000-000000000001'
_MOMENT = '2026-11-22T12:00:00Z'
_DIGEST = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'
_VIEW = {
    'path': [],
    'tool': ['write_file'],
    'arguments': [
        {'name': ['path'], 'kind': 'text', 'value': ['/report.md'], 'in_preview': False},
        {'name': ['content'], 'kind': 'text', 'value': ['# Sales ', '\\u202e', ''], 'in_preview': False},
    ],
    'preview': None,
    'escapes': 1,
    'digest': _DIGEST,
}

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=r'^[^\x00\r\n]+$')]
"""What people call something: one line."""

Id: TypeAlias = Annotated[str, Field(max_length=64)]
"""An id in full."""

Reason: TypeAlias = Annotated[str, Field(max_length=10_000)]
"""What a person says of an answer."""


def _examples(example: dict[str, Any], **config: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={'examples': [example]}, **config)


class NewConversation(BaseModel):
    """A conversation to be begun."""

    model_config = _examples({'agent': 'analyst', 'name': 'Sales of May'}, extra='forbid')

    agent: Name
    """The agent."""
    name: Name | None = None
    """What people call it."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue], max_length=100)
    """What is kept with all its versions. Keys that begin with `server.` are the server's own."""
    instructions: str | None = Field(default=None, max_length=100_000)
    """What the agent is told in all turns besides its own instructions. Every key that may begin a conversation may set it."""


class ConversationChange(BaseModel):
    """What is to be different in a conversation."""

    model_config = _examples({'name': 'Sales of June'}, extra='forbid')

    name: Name
    """What people call it from now on."""


class UsageShape(BaseModel):
    """What was used."""

    input_tokens: int = 0
    """Sent, cached ones included."""
    output_tokens: int = 0
    """Written by models."""
    cache_read_tokens: int = 0
    """Sent and found in a provider's cache."""
    cache_write_tokens: int = 0
    """Sent and written to a provider's cache."""
    requests: int = 0
    """Answers of models."""
    tool_calls: int = 0
    """Calls that ran."""


class ApprovalShape(BaseModel):
    """A call that waits for a person, or has waited."""

    model_config = _examples(
        {
            'id': _ID,
            'pending_id': 'call_1',
            'version_id': _ID,
            'conversation_id': _ID,
            'agent': 'analyst',
            'path': [],
            'tool': 'write_file',
            'args': {'path': '/report.md', 'content': '# Sales'},
            'view': _VIEW,
            'decisions': ['approve', 'edit', 'deny'],
            'status': 'pending',
            'decided_by': None,
            'reason': None,
            'decided_at': None,
            'expires_at': None,
            'created_at': _MOMENT,
        }
    )

    id: str
    """Names it among all."""
    pending_id: str
    """Names it among those of its version, as `approval_required` tells it and `resume` takes it."""
    version_id: str
    """The version that waits."""
    conversation_id: str
    """The conversation."""
    agent: str
    """The agent that asks."""
    path: list[str]
    """The subagents that lead to the call."""
    tool: str
    """The tool."""
    args: dict[str, JsonValue]
    """All arguments, for a program. To show them to a person, show `view`: in it nothing can hide."""
    view: ApprovalView
    """What a person is to be shown of the call, and the `digest` that an answer carries."""
    decisions: list[Literal['approve', 'edit', 'deny', 'respond']]
    """Which answers it takes."""
    status: ApprovalStatus
    """What became of it."""
    decided_by: str | None
    """Who answered: the owner of the key that did, or whoever it was elsewhere."""
    reason: str | None
    """Why it was answered so."""
    decided_at: AwareDatetime | None
    """When it was answered."""
    expires_at: AwareDatetime | None
    """When it counts as denied; null for never."""
    created_at: AwareDatetime
    """When it was asked."""


class ApprovalPage(BaseModel):
    """Some of the approvals that were asked for."""

    items: list[ApprovalShape]
    """Those of the newest versions first."""
    cursor: str | None
    """What to ask the next page with; null if this is the last."""


class Answer(BaseModel):
    """What a person decides of one call."""

    model_config = _examples(
        {'decision': 'edit', 'args': {'path': '/report.md', 'content': '# Sales of May'}, 'digest': _DIGEST},
        extra='forbid',
    )

    decision: Literal['approve', 'edit', 'deny', 'respond']
    """Let it run as shown, run it with `args`, do not run it, or answer in the place of the tool with `content`."""
    args: dict[str, JsonValue] | None = None
    """Of `edit`: all arguments."""
    content: JsonValue = None
    """Of `respond`: what the model sees as the result."""
    reason: Reason | None = None
    """Of `deny`: what the model is told. Of all: why."""
    digest: Annotated[str, Field(min_length=64, max_length=64)] | None = None
    """The `view.digest` of the approval as the person was shown it: the answer is refused with 409 if the call is
    another one. Needed for all but `deny`."""


class AnsweredApproval(BaseModel):
    """An approval after its answer."""

    approval: ApprovalShape
    """It."""
    run_id: str | None
    """The run that goes on with it, if `resume` was asked for and nothing waits any more."""


class TurnSettings(BaseModel):
    """What of the model's settings a client may choose."""

    model_config = _examples({'temperature': 0}, extra='forbid', strict=True)

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """How much chance there is."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Of which part of the probability tokens are drawn."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """How long one answer of the model may be."""
    seed: int | None = None
    """Where chance begins, for providers that know it."""
    stop_sequences: Annotated[list[str], Field(max_length=16)] | None = None
    """What ends an answer."""
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """How much new words are preferred."""
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    """How much repeated words are avoided."""
    parallel_tool_calls: bool | None = None
    """Whether one answer may have several calls."""


class _Turn(BaseModel):
    max_iterations: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How often models may be asked at most, those of subagents included."""
    session_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """An id of your own: the stream, the audit record and tools see it."""


class NewBranch(_Turn):
    """A turn that begins a branch."""

    model_config = _examples({'prompt': 'Try it with the median.', 'branch': 'median'}, extra='forbid')

    prompt: Annotated[str, Field(min_length=1)]
    """What the user says."""
    branch: Name | None = None
    """A name for the branch that begins with this turn."""
    model_settings: TurnSettings | None = None
    """Settings of this turn."""


class NewTurn(NewBranch):
    """A turn of a conversation."""

    model_config = _examples({'prompt': 'Summarize /uploads/sales.csv.'}, extra='forbid')

    from_version: Id | None = None
    """The version to go on from; the head if left out. A turn from another than the head leaves the head where it is."""


class Resumption(_Turn):
    """Answers to what waits, and the turn goes on."""

    model_config = _examples({'answers': {'call_1': {'decision': 'approve', 'digest': _DIGEST}}}, extra='forbid')

    answers: dict[str, Answer] = Field(default_factory=dict[str, Answer], max_length=10_000)
    """By the `pending_id` of each; empty to go on with what was answered in the inbox."""
    reason: Reason | None = None
    """Why, for all of them."""
    from_version: Id | None = None
    """The version that waits; the head if left out."""


class RunShape(BaseModel):
    """A run."""

    model_config = _examples(
        {
            'id': _ID,
            'conversation_id': _ID,
            'agent': 'analyst',
            'state': 'complete',
            'has_moved_on': False,
            'base_id': _ID,
            'version_id': _ID,
            'output': 'Sales grew by 4 %.',
            'error': None,
            'approvals': [],
            'usage': {'input_tokens': 1200, 'output_tokens': 80, 'requests': 2, 'tool_calls': 1},
            'session_id': None,
            'is_here': True,
            'attempts': 1,
            'started_at': _MOMENT,
            'ended_at': _MOMENT,
        }
    )

    id: str
    """Names it."""
    conversation_id: str
    """The conversation."""
    agent: str
    """The agent."""
    state: ServedRunState
    """What became of it. One without an end in the store is `suspended` until it is resumed or cancelled."""
    has_moved_on: bool
    """Whether it is suspended and its conversation has moved on, so that it resumes only when somebody asks for it."""
    base_id: str | None
    """The version that it went on from."""
    version_id: str | None
    """The version that it ended with; of one that works, its newest step where that is known."""
    output: str | None
    """Its answer as text, JSON if it is structured."""
    error: ErrorEvent | None
    """Why it failed."""
    approvals: list[ApprovalShape]
    """What it waits for, or has waited for."""
    usage: UsageShape
    """What it has used by itself."""
    session_id: str | None
    """The caller's own id, as long as the log is kept."""
    is_here: bool
    """Whether it works in this process, or its log is here still."""
    attempts: int
    """How often it was begun: once more after each crash."""
    started_at: AwareDatetime
    """When it began."""
    ended_at: AwareDatetime | None
    """When it ended."""


class RunList(BaseModel):
    """Runs."""

    items: list[RunShape]
    """Newest first."""


class ConversationShape(BaseModel):
    """A conversation."""

    model_config = _examples(
        {
            'id': _ID,
            'agent': 'analyst',
            'name': 'Sales of May',
            'metadata': {},
            'head': _ID,
            'state': 'complete',
            'branch': 'main',
            'running': [],
            'suspended': [],
            'todos': [{'content': 'Read the table', 'status': 'completed'}],
            'approvals': [],
            'usage': {'input_tokens': 1200, 'output_tokens': 80, 'requests': 2, 'tool_calls': 1},
            'created_at': _MOMENT,
        }
    )

    id: str
    """Names it."""
    agent: str
    """The agent."""
    name: str | None
    """What people call it."""
    metadata: dict[str, JsonValue]
    """What is kept with its versions."""
    head: str | None
    """The version that the next turn goes on from."""
    state: VersionState | None
    """What became of the turn that ended there."""
    branch: str | None
    """The branch of the head."""
    running: list[str]
    """The ids of the runs that work in it now."""
    suspended: list[str]
    """The ids of its suspended runs, oldest first: resume each, or cancel it."""
    todos: list[Todo]
    """The plan at the head."""
    approvals: list[ApprovalShape]
    """What waits at the head."""
    usage: UsageShape
    """What the conversation has used up to the head."""
    created_at: AwareDatetime
    """When it was begun."""


class ConversationSummary(BaseModel):
    """A conversation in a list."""

    model_config = _examples(
        {'id': _ID, 'agent': 'analyst', 'name': 'Sales of May', 'head': _ID, 'created_at': _MOMENT}
    )

    id: str
    """Names it."""
    agent: str
    """The agent."""
    name: str | None
    """What people call it."""
    head: str | None
    """The version that the next turn goes on from."""
    created_at: AwareDatetime
    """When it was begun."""


class ConversationPage(BaseModel):
    """Some of the conversations that were asked for."""

    items: list[ConversationSummary]
    """Newest first."""
    cursor: str | None
    """What to ask the next page with; null if this is the last."""


class Transcript(BaseModel):
    """The messages of a version, in the form of `MessageList.to_dict()`."""

    model_config = _examples(
        {
            'format_version': 1,
            'messages': [{'kind': 'request', 'parts': [{'part_kind': 'user-prompt', 'content': 'Hello'}]}],
        }
    )

    format_version: int
    """The version of the format."""
    messages: list[JsonValue]
    """Oldest first."""


class ProtectedChangeShape(BaseModel):
    """A protected file that a turn changed."""

    path: str
    """Its path, from the root of the files on; characters that cannot be seen are escaped."""
    change: Literal['added', 'changed', 'removed']
    """What became of it."""


class OmittedFileShape(BaseModel):
    """A file that no version has."""

    path: str
    """Where it is."""
    reason: Literal['too large', 'unreadable', 'invalid path']
    """Why it is in no version."""
    size_bytes: int | None
    """How large it is, where that is known."""


class VersionShape(BaseModel):
    """A version: what was true of a conversation at one moment."""

    model_config = _examples(
        {
            'id': _ID,
            'parent_id': None,
            'merged_from': None,
            'conversation_id': _ID,
            'agent': 'analyst',
            'kind': 'turn',
            'state': 'complete',
            'branch': 'main',
            'name': None,
            'prompt': 'Summarize /uploads/sales.csv.',
            'run_id': _ID,
            'message_count': 4,
            'model': 'openai:gpt-5.2',
            'usage': {'input_tokens': 1200, 'output_tokens': 80, 'requests': 2, 'tool_calls': 1},
            'files_changed': ['/report.md'],
            'protected_changes': [{'path': '/.git/config', 'change': 'changed'}],
            'omitted_files': [],
            'is_head': True,
            'created_at': _MOMENT,
        }
    )

    id: str
    """Names it."""
    parent_id: str | None
    """The version that it came from, also if that was deleted; null for the first."""
    merged_from: str | None
    """The second parent of a merge."""
    conversation_id: str
    """The conversation."""
    agent: str
    """The agent."""
    kind: VersionKind
    """How it came to be."""
    state: VersionState
    """What became of its turn."""
    branch: str
    """The branch that its messages are on."""
    name: str | None
    """What people call it."""
    prompt: str | None
    """What the user said in its turn."""
    run_id: str | None
    """The run that made it."""
    message_count: int
    """How many messages its history has."""
    model: str | None
    """The model that answered last, as `provider:name`."""
    usage: UsageShape
    """What the conversation has used up to here."""
    files_changed: list[str]
    """The files that are other than in the parent."""
    protected_changes: list[ProtectedChangeShape]
    """What its turn made of files that programs of the host run or obey, such as those of git, which no version
    holds."""
    omitted_files: list[OmittedFileShape]
    """Files that were there and that it does not have."""
    is_head: bool
    """Whether the next turn goes on from it."""
    created_at: AwareDatetime
    """When it was made."""


class VersionPage(BaseModel):
    """Some of the versions that were asked for."""

    items: list[VersionShape]
    """Newest first."""
    cursor: str | None
    """What to ask the next page with; null if this is the last."""


class FileDiffShape(BaseModel):
    """A file that is different."""

    path: str
    """The file."""
    shown_path: EscapedText
    """Its path, to be shown to a person: every second piece stands for a character that cannot be seen."""
    kind: Literal['added', 'removed', 'changed']
    """What became of it."""
    diff: str | None
    """A unified diff, for a program to apply; null for what is no text, or too large."""
    view: DiffView | None
    """The same as typed lines, to be shown to a person; null likewise."""
    size_before: int | None
    """Bytes; null if it was not there."""
    size_after: int | None
    """Bytes; null if it is not there."""


class DiffShape(BaseModel):
    """What is different from one version to another."""

    model_config = _examples(
        {
            'before': _ID,
            'after': _ID,
            'messages_common': 2,
            'messages_removed': [],
            'messages_added': [],
            'files': [
                {
                    'path': '/a.txt',
                    'kind': 'added',
                    'diff': '--- a/a.txt\n+++ b/a.txt\n@@ -0,0 +1 @@\n+b\n',
                    'view': {
                        'path': ['/a.txt'],
                        'kind': 'added',
                        'hunks': [
                            {
                                'header': '@@ -0,0 +1 @@',
                                'lines': [
                                    {'kind': 'added', 'before': None, 'after': 1, 'text': ['b'], 'is_ended': True}
                                ],
                            }
                        ],
                        'hidden_lines': 0,
                        'added': 1,
                        'removed': 0,
                    },
                    'size_before': None,
                    'size_after': 2,
                },
            ],
            'todos_before': [],
            'todos_after': [],
            'usage': {'input_tokens': 100, 'output_tokens': 10, 'requests': 1},
        }
    )

    before: str
    """The first version."""
    after: str
    """The second version."""
    messages_common: int
    """How many messages both begin with."""
    messages_removed: list[JsonValue]
    """Those that only the first has."""
    messages_added: list[JsonValue]
    """Those that only the second has."""
    files: list[FileDiffShape]
    """By path."""
    todos_before: list[Todo]
    """The plan of the first."""
    todos_after: list[Todo]
    """The plan of the second."""
    usage: UsageShape
    """What the second has used more; numbers may be negative."""


class FileShape(BaseModel):
    """A file of a version."""

    path: str
    """Its absolute path."""
    size_bytes: int
    """Its size."""
    digest: str
    """Of its contents: `sha256:` and 64 hexadecimal digits."""
    is_executable: bool
    """Whether its owner may execute it."""


class FileList(BaseModel):
    """The files of a version."""

    model_config = _examples(
        {'items': [{'path': '/a.txt', 'size_bytes': 2, 'digest': f'sha256:{"0" * 64}', 'is_executable': False}]}
    )

    items: list[FileShape]
    """By path."""


class HeadChange(BaseModel):
    """Where the head of a conversation is to go."""

    model_config = _examples({'version': _ID}, extra='forbid')

    version: Id
    """A version of the conversation: one before, or one of another branch."""
    expected: Id | None = None
    """Where the head is thought to be; refused if it is elsewhere. If left out it moves from wherever it is."""


class Merge(BaseModel):
    """Another version, whose files are to be joined."""

    model_config = _examples({'other': _ID}, extra='forbid')

    other: Id
    """The version whose files come in. The dialogue stays that of the one that is merged into."""


class UploadShape(BaseModel):
    """A file that the user gave."""

    model_config = _examples(
        {
            'name': 'sales.csv',
            'path': '/uploads/sales.csv',
            'size_bytes': 12,
            'encoding': 'ascii',
            'line_count': 2,
            'media_type': 'text/csv',
        }
    )

    name: str
    """The name that it was given."""
    path: str
    """Where the agent finds it."""
    size_bytes: int
    """Its size."""
    encoding: str | None
    """The codec of a text; null for what is no text."""
    line_count: int | None
    """The number of lines of a text."""
    media_type: str
    """By the name first, then by the contents."""


class UploadList(BaseModel):
    """The uploads at the head of a conversation."""

    items: list[UploadShape]
    """By name."""


class NewUpload(BaseModel):
    """An upload, and the version that has it."""

    upload: UploadShape
    """It."""
    version_id: str
    """The version, which is the head now."""
