r"""Which part of a text one `read_file` shows, and what it says of the rest. Pure.

A window begins at a line, or inside of a line that is too long to show: the notice on such a line names the offset
`'line:character'` that goes on. Lines are those of grep: only `\n` ends one, and a `\r` before it is not shown.
"""

from __future__ import annotations

import re

from pydantic_deep_backends.search import split_lines

from ._types import Position

MAX_LINE_CHARS = 2_000
"""How much of a line is shown before the lines after it; more of it is read by its own offset."""

_OFFSET = re.compile(r'(\d{1,12})(?::(\d{1,12}))?')


class OffsetError(ValueError):
    """The offset is none, or lies past the end; the message says what to do."""


def parse_offset(offset: int | str) -> Position:
    """Return the position that an offset means; 0 means 1.

    Args:
        offset: A line number, or `'line:character'`.

    Raises:
        OffsetError: It is neither.
    """
    match = _OFFSET.fullmatch(str(offset))
    if match is None:
        raise OffsetError(f'The offset {offset!r} is not a line number from 1, or "line:character".')
    return Position(line=int(match[1]) or 1, char=int(match[2] or 1) or 1)


def render_window(text: str, position: Position, *, limit: int, max_chars: int) -> str:
    """Return numbered lines, and a notice where something was left out.

    Args:
        text: The whole text, not empty.
        position: Where to begin.
        limit: How many lines to show.
        max_chars: After how many characters to stop; notices are not counted.

    Raises:
        OffsetError: The text has no such line, or the line no such character.
    """
    lines = split_lines(text)
    if position.line > len(lines):
        raise OffsetError(f'There are {len(lines):,} lines; offset {position.line:,} is past the end.')
    shown: list[str] = []
    budget = max_chars
    for number in range(position.line, min(position.line + max(limit, 1), len(lines) + 1)):
        line = _without_end(lines[number - 1])
        begin = position.char if number == position.line else 1
        if begin > max(len(line), 1):
            raise OffsetError(f'Line {number:,} has {len(line):,} characters; {begin:,} is past its end.')
        room = budget if begin > 1 else min(MAX_LINE_CHARS, max_chars)
        if shown and min(len(line), room) > budget:
            break
        part = line[begin - 1 : begin - 1 + room]
        budget -= len(part)
        shown.append(f'{number}\t{part}{_rest_of_line(number, line, begin - 1 + len(part))}')
        if begin > 1 and begin - 1 + len(part) < len(line):
            break
    last = position.line + len(shown) - 1
    if last < len(lines):
        shown.append(f'[lines {position.line:,} to {last:,} of {len(lines):,}; go on with offset {last + 1}]')
    return '\n'.join(shown)


def _without_end(line: str) -> str:
    return line.removesuffix('\n').removesuffix('\r') if line.endswith('\n') else line


def _rest_of_line(number: int, line: str, done: int) -> str:
    if done >= len(line):
        return ''
    return f'… [line of {len(line):,} characters; go on with offset "{number}:{done + 1}"]'
