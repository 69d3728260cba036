"""How a call that waits looks to the person who is to decide: all of it, and nothing that looks like anything else. Pure.

Each line of what a model wrote stands behind a bar or an indent, however often it is folded, so that no text in it
passes for a line of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pydantic import JsonValue
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ._events import Approval, ApprovalPreview
from ._printable import visible

BAR = '│ '
"""Begins each line of a text of the model's."""

FOLDED = '┆ '
"""Begins what is left of a line that is longer than the screen is wide."""

INDENT = '  '
"""Begins each line of a question but the first."""

_LEFT_OUT_LINES = 3
"""From how many lines on an argument is not repeated that the diff shows whole."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is shown of one call, for a Rich console."""

    approval: Approval
    number: int
    """Which question it is, from 1."""
    count: int
    """How many there are."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, folded to the width."""
        for bar, text in self.lines():
            width = max(options.max_width - len(INDENT + FOLDED), 1)
            for number, piece in enumerate(text.wrap(console, width, overflow='fold')):
                yield Text.assemble(INDENT, (FOLDED if number and bar else INDENT if number else bar, 'dim'), piece)

    @property
    def title(self) -> Text:
        """The first line: the tool, and which of how many questions it is."""
        of = f'  {self.number} of {self.count}' if self.count > 1 else ''
        return Text.assemble(('? ', 'bold yellow'), (visible(self.approval.tool), 'bold'), (of, 'dim'))

    def lines(self) -> Iterator[tuple[str, Text]]:
        """Yield what begins a line, and the line."""
        approval = self.approval
        if approval.path:
            yield '', Text(f'subagent: {" › ".join(map(visible, approval.path))}', 'magenta')
        preview = approval.preview
        for name, value in approval.args.items():
            if preview is None or not _is_shown(value, preview):
                yield from _argument(name, value)
            elif preview.kind == 'diff':
                yield '', Text.assemble((visible(name), 'bold'), (': all of it is in the diff', 'dim'))
        if preview is not None and preview.text:
            yield from _preview(preview)


def _argument(name: str, value: JsonValue) -> Iterator[tuple[str, Text]]:
    """Yield an argument whole: text as it is, all else as JSON."""
    label = (f'{visible(name)}: ', 'bold')
    if not isinstance(value, str):
        yield '', Text.assemble(label, visible(json.dumps(value, ensure_ascii=False)))
    elif '\n' not in value:
        yield '', Text.assemble(label, visible(value) if _is_plain(value) else json.dumps(value))
    else:
        yield '', Text.assemble(label)
        for line in value.removesuffix('\n').split('\n'):
            yield BAR, Text(visible(line))
        if not value.endswith('\n'):
            yield BAR, Text('(no newline at its end)', 'dim')


def _is_plain(value: str) -> bool:
    """Return whether a text cannot be taken for anything but this text."""
    try:
        json.loads(value)
    except ValueError:
        return bool(value) and value == value.strip()
    return False


def _is_shown(value: JsonValue, preview: ApprovalPreview) -> bool:
    """Return whether the preview shows all of an argument."""
    if not isinstance(value, str) or not preview.text:
        return False
    if preview.kind == 'command':
        return value == preview.text
    wanted = value.removesuffix('\n').split('\n')
    return len(wanted) >= _LEFT_OUT_LINES and any(_has(side, wanted) for side in _sides(preview.text))


def _sides(diff: str) -> tuple[list[str], list[str]]:
    """Return the lines before and after, as far as a unified diff has them; a gap is a line that no text has."""
    before: list[str] = []
    after: list[str] = []
    for line in islice(diff.split('\n'), 2, None):
        match line[:1]:
            case ' ' | '':
                before.append(line[1:])
                after.append(line[1:])
            case '-':
                before.append(line[1:])
            case '+':
                after.append(line[1:])
            case '@':
                before.append('\n')
                after.append('\n')
            case _:
                pass  # `\ No newline at end of file`
    return before, after


def _has(lines: Sequence[str], wanted: Sequence[str]) -> bool:
    size = len(wanted)
    starts = (start for start in range(len(lines) - size + 1) if lines[start] == wanted[0])
    return any(lines[start : start + size] == wanted for start in starts)


def _preview(preview: ApprovalPreview) -> Iterator[tuple[str, Text]]:
    lines = preview.text.removesuffix('\n').split('\n')
    for number, line in enumerate(lines):
        if preview.kind == 'diff':
            yield BAR, Text(visible(line), _diff_style(number, line))
        else:
            begin = '$ ' if preview.kind == 'command' and number == 0 else '  '
            yield BAR, Text.assemble((begin, 'dim'), (visible(line), 'bold'))


def _diff_style(number: int, line: str) -> str:
    if number < 2:
        return 'bold'
    return {'+': 'green', '-': 'red', '@': 'cyan', '\\': 'dim'}.get(line[:1], '')
