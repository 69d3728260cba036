"""A pending call as the approval prompt shows it: an `ApprovalView` as a Rich renderable. Pure.

Each line of model output starts with a bar or an indent, even if it is folded, so that it cannot be mistaken for a
line of the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from pydantic_deep._text.escapes import EscapedText
from pydantic_deep.approvals import ApprovalView, ArgumentView, PreviewView, field_text
from pydantic_deep.cli.render._diff import render_diff
from pydantic_deep.cli.render._terminal_text import rich_text

BAR = '│ '
"""Prefix of each line of model output."""

WRAPPED = '┆ '
"""Prefix of each continuation of a folded line."""

INDENT = '  '
"""Prefix of all lines of a prompt except the first."""


@dataclass(frozen=True, kw_only=True)
class CallView:
    """One pending call as a Rich renderable."""

    view: ApprovalView
    number: int
    """The position of the call among the pending ones, from 1."""
    count: int
    """The number of pending calls."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, folded to the width of the console."""
        for bar, text in self.lines():
            width = max(options.max_width - len(INDENT + WRAPPED), 1)
            for number, piece in enumerate(text.wrap(console, width, overflow='fold')):
                yield Text.assemble(INDENT, (WRAPPED if number and bar else INDENT if number else bar, 'dim'), piece)

    @property
    def title(self) -> Text:
        """The first line: the tool, the position and the number of pending calls."""
        of = f'  {self.number} of {self.count}' if self.count > 1 else ''
        return Text.assemble(('? ', 'bold yellow'), rich_text(self.view.tool, 'bold'), (of, 'dim'))

    def lines(self) -> Iterator[tuple[str, Text]]:
        """Yield each line with its prefix."""
        view = self.view
        if view.path:
            names = Text(' › ').join(map(rich_text, view.path))
            yield '', Text.assemble('subagent: ', names, style='magenta')
        preview = view.preview
        if preview is not None and preview.notice != ('',):
            yield '', rich_text(preview.notice, 'bold yellow')
        for argument in view.arguments:
            if not argument.in_preview:
                yield from _argument_lines(argument)
            elif preview is not None and preview.kind == 'diff':
                yield '', Text.assemble(rich_text(argument.name, 'bold'), (': all of it is in the diff', 'dim'))
        if preview is not None:
            yield from _preview_lines(preview)
        if view.escapes:
            yield '', Text(f'invisible characters, escaped: {view.escapes}', 'yellow')


def _argument_lines(argument: ArgumentView) -> Iterator[tuple[str, Text]]:
    """Yield a complete argument: a plain text as it is, any other value as JSON."""
    label = rich_text((*argument.name[:-1], f'{argument.name[-1]}: '), 'bold')
    if argument.kind == 'text' and len(argument.value) == 1 and not _is_plain(argument.value[0]):
        yield '', Text.assemble(label, json.dumps(argument.value[0], ensure_ascii=False))
        return
    lines = [*rich_text(argument.value).split('\n', allow_blank=True)]
    if len(lines) == 1:
        yield '', Text.assemble(label, lines[0])
        return
    yield '', label
    is_ended = not lines[-1].plain
    for line in lines[:-1] if is_ended else lines:
        yield BAR, line
    if argument.kind == 'text' and not is_ended:
        yield BAR, Text('(no newline at its end)', 'dim')


def _is_plain(value: str) -> bool:
    """Return whether a text is unambiguous without quotes: no JSON value, and no surrounding whitespace."""
    if '\n' in value:
        return True
    try:
        json.loads(value)
    except ValueError:
        return bool(value) and value == value.strip()
    return False


def _preview_lines(preview: PreviewView) -> Iterator[tuple[str, Text]]:
    if preview.text != ('',):
        for number, line in enumerate(_text_lines(preview.text)):
            begin = '$ ' if preview.kind == 'command' and number == 0 else '  '
            yield BAR, Text.assemble((begin, 'dim'), Text.assemble(line, style='bold'))
    for number, choice in enumerate(preview.choices, start=1):
        yield BAR, Text.assemble((f'{number:>2} ', 'bold'), rich_text(choice))
    if preview.link != ('',):
        yield BAR, Text.assemble(('link: ', 'bold'), rich_text(preview.link))
    for field in preview.fields:
        yield BAR, Text.assemble(rich_text(field.name, 'bold'), f': {field_text(field)}')
    if preview.diff is not None:
        for line in render_diff(preview.diff):
            yield BAR, line


def _text_lines(text: EscapedText) -> list[Text]:
    lines = [*rich_text(text).split('\n', allow_blank=True)]
    return lines[:-1] if len(lines) > 1 and not lines[-1].plain else lines
