"""The diff of two versions, and the result of a replay: types, and pure functions that create them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from pydantic_deep._text.escapes import EscapedText, escape
from pydantic_deep._text.line_diff import DiffView, render_diff, view_diff
from pydantic_deep.todos import Todo
from pydantic_deep_backends import Tree

MAX_DIFF_BYTES = 1_000_000
"""The largest file whose lines are compared. For larger files, a diff states only that they changed."""


FileChangeKind: TypeAlias = Literal['added', 'removed', 'changed']
"""How a file differs."""


@dataclass(frozen=True, kw_only=True)
class FileDiff:
    """A file that differs between two versions."""

    path: str
    """The path of the file in trees."""
    shown_path: EscapedText
    """The path for people to read, alternating between plain text and escapes of invisible characters."""
    kind: FileChangeKind
    """Whether the file was added, removed or changed."""
    diff: str | None
    """A unified diff, for programs to apply; `None` if the file is not text, or too large."""
    view: DiffView | None
    """The diff as typed lines, for people to read; `None` in the same cases."""
    size_before: int | None
    """The size in bytes; `None` if the first version does not have the file."""
    size_after: int | None
    """The size in bytes; `None` if the second version does not have the file."""


@dataclass(frozen=True, kw_only=True)
class VersionDiff:
    """The differences from one version to another; true if there are any."""

    messages_common: int
    """The number of messages in the common prefix of both histories."""
    messages_removed: Sequence[ModelMessage]
    """The messages that only the first version has."""
    messages_added: Sequence[ModelMessage]
    """The messages that only the second version has."""
    files: Sequence[FileDiff]
    """The differing files, sorted by path."""
    todos_before: Sequence[Todo]
    """The todos of the first version."""
    todos_after: Sequence[Todo]
    """The todos of the second version."""
    usage: RunUsage
    """The usage of the second version minus that of the first; fields may be negative."""

    def __bool__(self) -> bool:
        is_replanned = list(self.todos_before) != list(self.todos_after)
        return bool(self.messages_removed or self.messages_added or self.files or is_replanned)

    def __str__(self) -> str:
        lines = [f'{len(self.messages_added)} messages more, {len(self.messages_removed)} fewer']
        lines += [f'{file.kind} {file.path}' for file in self.files]
        if list(self.todos_before) != list(self.todos_after):
            lines.append('todos changed')
        return '\n'.join(lines)


@dataclass(frozen=True, kw_only=True)
class RequestDifference:
    """The first request of a replay that differs from the recording."""

    number: int
    """The number of the request in its turn, from 1."""
    part: str
    """The part that differs: `settings`, `tools`, `instructions`, `options`, `messages`, or `count` if the number of
    requests differs.
    """
    detail: str
    """A unified diff or a sentence, followed by the capabilities that cause the difference, if they are known."""
    capabilities: Sequence[str] = ()
    """The class names of the capabilities that cause the difference: several if it is unclear which, none if the agent
    itself differs.
    """
    subagents: Sequence[str] = ()
    """The names of the subagents that lead to the run with the request; empty for the run of the turn itself."""

    def __str__(self) -> str:
        names = f' ({" or ".join(self.capabilities)})' if self.capabilities else ''
        return f'{_below(self.subagents)}request {self.number}, {self.part}{names}: {self.detail}'


@dataclass(frozen=True, kw_only=True)
class ResultDifference:
    """A tool call of a replay with another result than the recorded one."""

    number: int
    """The number of the request whose response has the call, from 1; 0 for a call of the version before."""
    tool_name: str
    """The name of the called tool."""
    response_id: str
    """The id of the recorded response with the call."""
    tool_call_id: str
    """The id of the call in that response."""
    detail: str
    """A unified diff from the recorded to the new result."""
    subagents: Sequence[str] = ()
    """The names of the subagents that lead to the run with the call; empty for the run of the turn itself."""

    def __str__(self) -> str:
        return f'{_below(self.subagents)}response {self.number}, tool {self.tool_name} returned: {self.detail}'


def _below(subagents: Sequence[str]) -> str:
    return ''.join(f'subagent {name}, ' for name in subagents)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The result of a replay; true if every request, and every result of a tool that ran, equals the recorded one."""

    requests: int
    """The number of requests that were compared."""
    difference: RequestDifference | None
    """The first difference; `None` if there is none."""
    output: object
    """The output of the turn in the replay."""
    messages: Sequence[ModelMessage]
    """The history of the turn in the replay."""
    results: Sequence[ResultDifference] = ()
    """The calls with other results, if tools ran, up to the first difference."""

    def __bool__(self) -> bool:
        return self.difference is None and not self.results


async def diff_files(before: Tree, after: Tree, read: Callable[[str], Awaitable[bytes]]) -> list[FileDiff]:
    """Return the files that differ between two trees, sorted by path.

    Args:
        before: The first tree.
        after: The second tree.
        read: Returns contents by digest.
    """
    changes = before.diff(after)
    kinds: Mapping[str, FileChangeKind] = {
        **dict.fromkeys(changes.added, 'added'),
        **dict.fromkeys(changes.removed, 'removed'),
        **dict.fromkeys(changes.changed, 'changed'),
    }
    diffs: list[FileDiff] = []
    for path in sorted(kinds):
        old, new = before.get(path), after.get(path)
        texts = [
            '' if version is None else None if version.size > MAX_DIFF_BYTES else _text_of(await read(version.digest))
            for version in (old, new)
        ]
        diffs.append(
            FileDiff(
                path=path,
                shown_path=escape(path, one_line=True),
                kind=kinds[path],
                diff=_unified(path, texts[0], texts[1]),
                view=_view(path, kinds[path], texts[0], texts[1]),
                size_before=None if old is None else old.size,
                size_after=None if new is None else new.size,
            )
        )
    return diffs


def _text_of(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _unified(path: str, before: str | None, after: str | None) -> str | None:
    if before is None or after is None:
        return None
    if before == after:
        return ''
    return render_diff(path, before, after)


def _view(path: str, kind: FileChangeKind, before: str | None, after: str | None) -> DiffView | None:
    if before is None or after is None:
        return None
    return view_diff(path, None if kind == 'added' else before, None if kind == 'removed' else after)
