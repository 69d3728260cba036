"""Versions, their files, and the differences between them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal, cast

from pydantic import AwareDatetime, BaseModel, JsonValue
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, UserPromptPart

from pydantic_deep._text.escapes import EscapedText, escape
from pydantic_deep.approvals import DiffView
from pydantic_deep.server._state import ServerState
from pydantic_deep.server.access._ownership import ServedVersion
from pydantic_deep.store import Store, VersionKind, VersionNotFoundError, VersionState
from pydantic_deep.todos import Todo
from pydantic_deep.versions import VersionDiff
from pydantic_deep_backends import Tree

from ._fields import EXAMPLE_ID, EXAMPLE_MOMENT, Id, example_config
from ._usage import UsageShape, build_usage


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

    model_config = example_config(
        {
            'id': EXAMPLE_ID,
            'parent_id': None,
            'merged_from': None,
            'conversation_id': EXAMPLE_ID,
            'agent': 'analyst',
            'kind': 'turn',
            'state': 'complete',
            'branch': 'main',
            'name': None,
            'prompt': 'Summarize /uploads/sales.csv.',
            'run_id': EXAMPLE_ID,
            'message_count': 4,
            'model': 'openai:gpt-5.2',
            'usage': {'input_tokens': 1200, 'output_tokens': 80, 'requests': 2, 'tool_calls': 1},
            'files_changed': ['/report.md'],
            'protected_changes': [{'path': '/.git/config', 'change': 'changed'}],
            'omitted_files': [],
            'is_head': True,
            'created_at': EXAMPLE_MOMENT,
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

    model_config = example_config(
        {
            'before': EXAMPLE_ID,
            'after': EXAMPLE_ID,
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

    model_config = example_config(
        {'items': [{'path': '/a.txt', 'size_bytes': 2, 'digest': f'sha256:{"0" * 64}', 'is_executable': False}]}
    )

    items: list[FileShape]
    """By path."""


class HeadChange(BaseModel):
    """Where the head of a conversation is to go."""

    model_config = example_config({'version': EXAMPLE_ID}, extra='forbid')

    version: Id
    """A version of the conversation: one before, or one of another branch."""
    expected: Id | None = None
    """Where the head is thought to be; refused if it is elsewhere. If left out it moves from wherever it is."""


class Merge(BaseModel):
    """Another version, whose files are to be joined."""

    model_config = example_config({'other': EXAMPLE_ID}, extra='forbid')

    other: Id
    """The version whose files come in. The dialogue stays that of the one that is merged into."""


async def build_version(state: ServerState, version: ServedVersion, *, head_id: str | None) -> VersionShape:
    """Build a version, with the prompt of its turn and the files that it changed."""
    parent = await _parent_of(state, version)
    return VersionShape(
        id=version.id,
        parent_id=version.parent_id,
        merged_from=version.merged_from,
        conversation_id=version.conversation_id,
        agent=version.agent_name,
        kind=version.kind,
        state=version.state,
        branch=version.branch,
        name=version.name,
        prompt=await _prompt_of(version, parent),
        run_id=version.run_id,
        message_count=version.message_count,
        model=version.model,
        usage=build_usage(version.usage),
        files_changed=await _changed_files(version, parent),
        protected_changes=[
            ProtectedChangeShape(path=each.path, change=each.change) for each in version.protected_changes
        ],
        omitted_files=[OmittedFileShape(**asdict(each)) for each in version.omitted_files],
        is_head=version.id == head_id,
        created_at=version.created_at,
    )


async def _parent_of(state: ServerState, version: ServedVersion) -> ServedVersion | None:
    if version.parent_id is None:
        return None
    try:
        return await state.agents[version.agent_name].load(version.parent_id)
    except VersionNotFoundError:
        return None


async def _prompt_of(version: ServedVersion, parent: ServedVersion | None) -> str | None:
    """Return the last prompt since the parent."""
    if version.run_id is None or version.kind == 'step' or version.message_count == 0:
        return None
    known = 0 if parent is None else parent.message_count
    is_longer = known < version.message_count  # a summary may have made it shorter
    messages = await version.messages(start=known, stop=known + 1) if is_longer else await version.messages()
    prompts = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]
    return None if not prompts else prompts[-1] if isinstance(prompts[-1], str) else _text_of(prompts[-1])


def _text_of(content: object) -> str:
    return ' '.join(each for each in cast('list[object]', content) if isinstance(each, str))


async def _changed_files(version: ServedVersion, parent: ServedVersion | None) -> list[str]:
    if version.tree == (None if parent is None else parent.tree):
        return []
    before = Tree() if parent is None else await parent.file_tree()
    changes = before.diff(await version.file_tree())
    return sorted([*changes.added, *changes.removed, *changes.changed])


def build_diff(before: ServedVersion, after: ServedVersion, diff: VersionDiff) -> DiffShape:
    """Build the difference between two versions."""
    return DiffShape(
        before=before.id,
        after=after.id,
        messages_common=diff.messages_common,
        messages_removed=dump_messages(list(diff.messages_removed)),
        messages_added=dump_messages(list(diff.messages_added)),
        files=[
            FileDiffShape(
                path=file.path,
                shown_path=escape(file.path, one_line=True),
                kind=file.kind,
                diff=file.diff,
                view=file.view,
                size_before=file.size_before,
                size_after=file.size_after,
            )
            for file in diff.files
        ],
        todos_before=list(diff.todos_before),
        todos_after=list(diff.todos_after),
        usage=build_usage(diff.usage),
    )


def dump_messages(messages: list[ModelMessage]) -> list[JsonValue]:
    """Return messages as JSON."""
    return cast('list[JsonValue]', ModelMessagesTypeAdapter.dump_python(messages, mode='json'))


async def head_of(store: Store, conversation_id: str) -> str | None:
    """Return the id of the head of a conversation."""
    record = await store.conversation(conversation_id)
    return None if record is None else record.head_id
