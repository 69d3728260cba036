r"""Line diffs of two texts: as typed lines for a reader, and as a unified diff for programs. Pure.

Lines end at `\n` only, as everywhere in this package. The diff is exact: applied to the old text, it gives the new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from pydantic_deep_backends.lines import shared_lines
from pydantic_deep_backends.search import split_lines

from .escapes import EscapedText, count_escapes, escape

CONTEXT_LINES: Final = 3
"""Number of unchanged lines around a change, as in `diff -u`."""

MAX_DIFF_LINES: Final = 50_000
"""Maximum number of lines in a displayed diff: far more than anybody reads, and some 200,000 elements of a page."""

MAX_DIFF_CHARS: Final = 4_000_000
"""Maximum number of characters: two files of 2 MB without a common line."""

NO_NEWLINE: Final = 'No newline at end of file'
"""The note after the last line of a text that does not end with a newline, as in `diff -u`."""

LineKind: TypeAlias = Literal['same', 'removed', 'added']
"""Whether a line is in both texts, only in the old one, or only in the new one."""


class _Shape(BaseModel):
    """A model that is built on first use: most programs import it and never show a diff."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, defer_build=True)


class DiffLine(_Shape):
    """One line of a diff."""

    kind: LineKind
    """Whether the line is in both texts, only in the old one, or only in the new one."""
    before: int | None
    """Line number in the old text, from 1; null if the line is only in the new one."""
    after: int | None
    """Line number in the new text, from 1; null if the line is only in the old one."""
    text: EscapedText
    """The line, without its newline."""
    is_ended: bool = True
    """Whether a newline ends the line: true for all lines but possibly the last of a text."""


class DiffHunk(_Shape):
    """Consecutive lines: changes, with up to three unchanged lines around them."""

    header: str
    """The line ranges in both texts, in the notation of `diff -u`: `@@ -1,3 +1,4 @@`."""
    lines: tuple[DiffLine, ...]
    """The lines; removed lines precede the added lines that replace them."""


class DiffView(_Shape):
    """The changes of a file, for display."""

    path: EscapedText
    """Path of the file."""
    kind: Literal['added', 'removed', 'changed']
    """Whether the file is created, deleted or changed."""
    hunks: tuple[DiffHunk, ...] = ()
    """All changes, in the order of the file; empty if the lines are the same."""
    hidden_lines: int = 0
    """Number of lines of a diff that is too long to be shown, and so has no hunks."""
    added: int = 0
    """Number of lines that are only in the new text."""
    removed: int = 0
    """Number of lines that are only in the old text."""

    def __str__(self) -> str:
        """Return the diff as escaped text, for a reader and not for a program."""
        return '\n'.join(''.join(line) for _, line in diff_lines(self))

    @property
    def escapes(self) -> int:
        """Number of escaped characters in the path and the lines."""
        lines = (line for hunk in self.hunks for line in hunk.lines)
        return count_escapes(self.path) + sum(count_escapes(line.text) for line in lines)


def view_diff(path: str, old: str | None, new: str | None) -> DiffView:
    """Return the diff of two texts for a reader.

    Args:
        path: The absolute path, as displayed.
        old: The current text; `None` if there is no file.
        new: The new text; `None` if the file is deleted.
    """
    hunks = [*_hunks(split_lines(old or ''), split_lines(new or ''))]
    lines = [line for hunk in hunks for line in hunk.lines]
    is_long = len(lines) > MAX_DIFF_LINES or sum(len(line.text) for line in lines) > MAX_DIFF_CHARS
    return DiffView(
        path=escape(path, one_line=True),
        kind='added' if old is None else 'removed' if new is None else 'changed',
        hunks=() if is_long else tuple(_view(hunk) for hunk in hunks),
        hidden_lines=len(lines) if is_long else 0,
        added=sum(line.kind == 'added' for line in lines),
        removed=sum(line.kind == 'removed' for line in lines),
    )


def render_diff(path: str, old: str | None, new: str) -> str:
    """Return a unified diff of two texts in the format of GNU `diff -u`, unescaped, for a program to apply.

    Args:
        path: The absolute path, as written in the diff.
        old: The current text; `None` if there is no file.
        new: The new text.

    Returns:
        The diff; only its two header lines if the texts have the same lines.
    """
    lines = [f'--- {"/dev/null" if old is None else f"a{path}"}\n', f'+++ b{path}\n']
    for hunk in _hunks(split_lines(old or ''), split_lines(new)):
        lines.append(f'{hunk.header}\n')
        lines += [
            f'{MARKS[line.kind]}{line.text}' + ('' if line.text.endswith('\n') else f'\n\\ {NO_NEWLINE}\n')
            for line in hunk.lines
        ]
    return ''.join(lines)


def diff_lines(diff: DiffView) -> Iterator[tuple[LineKind | Literal['file', 'hunk', 'note'], EscapedText]]:
    """Yield the lines of a displayed diff, each with its kind: for a terminal, not for a program."""
    head, *rest = diff.path
    yield 'file', ('--- /dev/null',) if diff.kind == 'added' else (f'--- a{head}', *rest)
    yield 'file', ('+++ /dev/null',) if diff.kind == 'removed' else (f'+++ b{head}', *rest)
    if diff.hidden_lines:
        yield 'note', (f'[the diff is not shown: it has {diff.hidden_lines:,} lines]',)
    for hunk in diff.hunks:
        yield 'hunk', (hunk.header,)
        for line in hunk.lines:
            head, *rest = line.text
            yield line.kind, (MARKS[line.kind] + head, *rest)
            if not line.is_ended:
                yield 'note', (f'\\ {NO_NEWLINE}',)


MARKS: Final[dict[LineKind, str]] = {'same': ' ', 'removed': '-', 'added': '+'}
"""Prefix of a line in the text of a diff, by kind."""


@dataclass(frozen=True, kw_only=True)
class _Line:
    kind: LineKind
    before: int | None
    after: int | None
    text: str
    """The line, including its newline."""


@dataclass(frozen=True, kw_only=True)
class _Hunk:
    header: str
    lines: Sequence[_Line]


_Change: TypeAlias = tuple[int, int, int, int]
"""`(start, stop)` in the old lines and `(start, stop)` in the new ones."""


def _view(hunk: _Hunk) -> DiffHunk:
    lines = tuple(
        DiffLine(
            kind=line.kind,
            before=line.before,
            after=line.after,
            text=escape(line.text.removesuffix('\n')),
            is_ended=line.text.endswith('\n'),
        )
        for line in hunk.lines
    )
    return DiffHunk(header=hunk.header, lines=lines)


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[_Hunk]:
    for changes in _grouped(_changes(old, new)):
        low, high = max(changes[0][0] - CONTEXT_LINES, 0), min(changes[-1][1] + CONTEXT_LINES, len(old))
        shift_low, shift_high = changes[0][2] - changes[0][0], changes[-1][3] - changes[-1][1]
        header = f'@@ -{_range(low, high)} +{_range(low + shift_low, high + shift_high)} @@'
        yield _Hunk(header=header, lines=[*_lines(changes, old, new, low, high)])


def _lines(changes: Sequence[_Change], old: Sequence[str], new: Sequence[str], low: int, high: int) -> Iterator[_Line]:
    done, shift = low, changes[0][2] - changes[0][0]
    for old_from, old_to, new_from, new_to in changes:
        yield from _same(old, done, old_from, shift)
        for place in range(old_from, old_to):
            yield _Line(kind='removed', before=place + 1, after=None, text=old[place])
        for place in range(new_from, new_to):
            yield _Line(kind='added', before=None, after=place + 1, text=new[place])
        done, shift = old_to, new_to - old_to
    yield from _same(old, done, high, shift)


def _same(old: Sequence[str], start: int, stop: int, shift: int) -> Iterator[_Line]:
    for place in range(start, stop):
        yield _Line(kind='same', before=place + 1, after=place + shift + 1, text=old[place])


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[_Change]:
    """Yield the ranges between the lines that both texts share."""
    done_old = done_new = 0
    blocks = shared_lines(*([line.encode('utf-8', 'surrogatepass') for line in lines] for lines in (old, new)))
    for start_old, start_new, count in (*blocks, (len(old), len(new), 0)):
        if done_old < start_old or done_new < start_new:
            yield done_old, start_old, done_new, start_new
        done_old, done_new = start_old + count, start_new + count


def _grouped(changes: Iterator[_Change]) -> Iterator[list[_Change]]:
    """Group changes with touching or overlapping context lines."""
    group: list[_Change] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * CONTEXT_LINES:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _range(low: int, high: int) -> str:
    """Return a range of lines in the notation of the format: an empty one starts at the preceding line."""
    count = high - low
    return f'{low + 1}' if count == 1 else f'{low + 1 if count else low},{count}'
