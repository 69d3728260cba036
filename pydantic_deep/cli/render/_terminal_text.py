"""Escaping of untrusted text for a terminal: invisible characters and control characters."""

from __future__ import annotations

from rich.text import Text

from pydantic_deep._text.escapes import EscapedText, readable


def escape_invisible(text: str) -> str:
    r"""Return the text with invisible characters escaped, such as `\x1b`. Newlines and tabs are not escaped."""
    return readable(text.replace('\r\n', '\n'))


def rich_text(text: EscapedText, style: str = '') -> Text:
    """Return escaped text for a Rich console. Escapes are printed in reverse video."""
    pieces = [(piece, 'reverse' if place % 2 else '') for place, piece in enumerate(text)]
    return Text.assemble(*pieces, style=style)


def first_line(text: str, max_chars: int) -> str:
    """Return the first nonblank line, truncated to a maximum number of characters."""
    line = next((line for line in escape_invisible(text).split('\n') if line.strip()), '').replace('\t', ' ').strip()
    return line if len(line) <= max_chars else f'{line[: max_chars - 1]}…'
