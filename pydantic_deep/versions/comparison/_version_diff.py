"""What is different between two versions, and what a replay found: values, and the pure parts of making them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from pydantic_deep._text.escapes import EscapedText, escape
from pydantic_deep._text.line_diff import DiffView, render_diff, view_diff
from pydantic_deep.todos import Todo
from pydantic_deep_backends import Tree

MAX_DIFF_BYTES = 1_000_000
"""The largest file whose lines are compared: above, a diff says only that it changed."""


FileChangeKind: TypeAlias = Literal['added', 'removed', 'changed']
"""What became of a file."""


@dataclass(frozen=True, kw_only=True)
class FileDiff:
    """One file that is different."""

    path: str
    """Its path in trees."""
    shown_path: EscapedText
    """The path as a person must see it: every second piece is the escape of a character that cannot be seen."""
    kind: FileChangeKind
    """What became of it."""
    diff: str | None
    """A unified diff, for programs to apply; `None` for what is no text, or too large."""
    view: DiffView | None
    """The same as typed lines, for people to read; `None` likewise."""
    size_before: int | None
    """Bytes; `None` if it was not there."""
    size_after: int | None
    """Bytes; `None` if it is not there."""


@dataclass(frozen=True, kw_only=True)
class VersionDiff:
    """What is different from one version to another; true if anything is."""

    messages_common: int
    """How many messages both begin with."""
    messages_removed: Sequence[ModelMessage]
    """Those that only the first has."""
    messages_added: Sequence[ModelMessage]
    """Those that only the second has."""
    files: Sequence[FileDiff]
    """By path."""
    todos_before: Sequence[Todo]
    """The plan of the first."""
    todos_after: Sequence[Todo]
    """The plan of the second."""
    usage: RunUsage
    """What the second has used more than the first; fields may be negative."""

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
    """The first request of a replay that is not what it was."""

    number: int
    """Which request of the turn, from 1."""
    part: str
    """What of it: `settings`, `tools`, `instructions`, `options`, `messages`, or `count` if there are more or fewer."""
    detail: str
    """A unified diff of both, or a sentence; then which capabilities it comes from, if they are known."""
    capabilities: Sequence[str] = ()
    """The classes of the capabilities that it comes from. Several where more than one could have made it; none where the
    agent itself is another."""

    def __str__(self) -> str:
        names = f' ({" or ".join(self.capabilities)})' if self.capabilities else ''
        return f'request {self.number}, {self.part}{names}: {self.detail}'


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What a replay found; true if everything was the same."""

    requests: int
    """How many requests were compared."""
    difference: RequestDifference | None
    """The first; `None` if there is none."""
    output: object
    """What the turn answered with this time."""
    messages: Sequence[ModelMessage]
    """The history that it made."""

    def __bool__(self) -> bool:
        return self.difference is None


async def diff_files(before: Tree, after: Tree, read: Callable[[str], Awaitable[bytes]]) -> list[FileDiff]:
    """Return what is different between two trees.

    Args:
        before: The first.
        after: The second.
        read: Returns contents by digest.
    """
    changes = before.diff(after)
    kinds: Mapping[str, FileChangeKind] = {
        **dict.fromkeys(changes.added, 'added'),
        **dict.fromkeys(changes.removed, 'removed'),
        **dict.fromkeys(changes.changed, 'changed'),
    }
    found: list[FileDiff] = []
    for path in sorted(kinds):
        old, new = before.get(path), after.get(path)
        texts = [
            '' if version is None else None if version.size > MAX_DIFF_BYTES else _text_of(await read(version.digest))
            for version in (old, new)
        ]
        found.append(
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
    return found


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


def usage_between(before: RunUsage, after: RunUsage) -> RunUsage:
    """Return `after` with its counts reduced by those of `before`."""
    names = ('requests', 'tool_calls', 'input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens')
    return replace(after, **{name: getattr(after, name) - getattr(before, name) for name in names})
