r"""Which part of a text one `read_file` shows, and what it says of the rest. Pure.

A window begins at a line, or inside of a line that is too long to show: the notice on such a line names the offset
`'line:character'` that goes on. Lines are those of `split_lines` in
`pydantic_deep_backends.search`, and so of grep: only `\n` ends one, and a `\r` before it is not shown.
"""

from __future__ import annotations

import re

from ._types import Position

MAX_LINE_CHARS = 2_000
"""How much of a line is shown before the lines after it; more of it is read by its own offset."""

_CHUNK_CHARS = 65_536
"""How much of a text is counted at once on the way to a line."""

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

    Costs as much as the window and a count of the lines before and after it, however large the text is.

    Args:
        text: The whole text, not empty.
        position: Where to begin.
        limit: How many lines to show, at least one.
        max_chars: After how many characters, those of the numbers and line ends counted, to stop; notices come on top.

    Raises:
        OffsetError: The text has no such line, or the line no such character.
    """
    total = text.count('\n') + (not text.endswith('\n'))
    if position.line > total:
        raise OffsetError(f'It ends at line {total:,}; offset {position.line:,} is past that.')
    shown: list[str] = []
    at = _start_of(text, position.line)
    for number in range(position.line, min(position.line + max(limit, 1), total + 1)):
        end, next_at = _end_of(text, at)
        begin = at + position.char - 1 if number == position.line else at
        if begin > max(end - 1, at):
            raise OffsetError(f'Line {number:,} has {end - at:,} characters; {position.char:,} is past its end.')
        room = max_chars if begin > at else min(MAX_LINE_CHARS, max_chars)
        stop = min(end, begin + room)
        line = f'{number}\t{text[begin:stop]}'
        max_chars -= len(line) + 1
        if shown and max_chars < 0:
            break
        shown.append(line + _rest_of_line(number, end - at, stop - at))
        if begin > at and stop < end:
            break
        at = next_at
    last = position.line + len(shown) - 1
    if last < total:
        shown.append(f'[lines {position.line:,} to {last:,} of {total:,}; go on with offset {last + 1}]')
    return '\n'.join(shown)


def _start_of(text: str, line: int) -> int:
    """Return where a line begins that exists."""
    at, ends_before = 0, line - 1
    while (ends := text.count('\n', at, at + _CHUNK_CHARS)) < ends_before:
        ends_before -= ends
        at += _CHUNK_CHARS
    for _ in range(ends_before):
        at = text.index('\n', at) + 1
    return at


def _end_of(text: str, at: int) -> tuple[int, int]:
    """Return where the line at `at` ends, its line end not counted, and where the next one begins."""
    end = text.find('\n', at)
    if end < 0:
        return len(text), len(text)
    return (end - 1 if end > at and text[end - 1] == '\r' else end), end + 1


def _rest_of_line(number: int, length: int, done: int) -> str:
    if done >= length:
        return ''
    return f'… [line of {length:,} characters; go on with offset "{number}:{done + 1}"]'
