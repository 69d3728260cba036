r"""Select the section of a text that one `read_file` shows, with a notice of the rest. Pure.

A section starts at a line, or within a line that is too long to show: the notice for such a line contains the offset
`'line:character'` where it continues. Lines are those of `split_lines` in `pydantic_deep_backends.search`, as in grep:
only `\n` ends a line, and a `\r` before it is not shown.
"""

from __future__ import annotations

import re

from ._types import Position

MAX_LINE_CHARS = 2_000
"""Maximum number of characters of a line to show at first. The rest of the line is read by its own offset."""

_CHUNK_CHARS = 65_536
"""Number of characters to count at once when searching for a line."""

_OFFSET = re.compile(r'(\d{1,12})(?::(\d{1,12}))?')


class OffsetError(ValueError):
    """The offset is malformed or out of range. The message advises the model."""


def parse_offset(offset: int | str) -> Position:
    """Return the position of an offset; 0 means 1.

    Args:
        offset: A line number, or `'line:character'`.

    Raises:
        OffsetError: The offset has neither form.
    """
    match = _OFFSET.fullmatch(str(offset))
    if match is None:
        raise OffsetError(f'The offset {offset!r} is not a line number from 1, or "line:character".')
    return Position(line=int(match[1]) or 1, char=int(match[2] or 1) or 1)


def render_window(text: str, position: Position, *, limit: int, max_chars: int) -> str:
    """Return numbered lines, such as `1→text`, with a notice for each omitted part.

    The cost depends on the section and on a count of the lines around it, regardless of the size of the text.

    Args:
        text: The complete text, not empty.
        position: The start of the section.
        limit: Maximum number of lines to show, at least one.
        max_chars: Maximum number of characters, including line numbers and line endings but not notices.

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
        line = f'{number}→{text[begin:stop]}'
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
    """Return the position where an existing line starts."""
    at, ends_before = 0, line - 1
    while (ends := text.count('\n', at, at + _CHUNK_CHARS)) < ends_before:
        ends_before -= ends
        at += _CHUNK_CHARS
    for _ in range(ends_before):
        at = text.index('\n', at) + 1
    return at


def _end_of(text: str, at: int) -> tuple[int, int]:
    """Return the end of the line at `at`, without its line ending, and the start of the next line."""
    end = text.find('\n', at)
    if end < 0:
        return len(text), len(text)
    return (end - 1 if end > at and text[end - 1] == '\r' else end), end + 1


def _rest_of_line(number: int, length: int, done: int) -> str:
    if done >= length:
        return ''
    return f'… [line of {length:,} characters; go on with offset "{number}:{done + 1}"]'
