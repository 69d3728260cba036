"""Text of others that goes to a terminal: characters that cannot be seen, or that drive a terminal, are escaped."""

from __future__ import annotations

from rich.text import Text

from pydantic_deep._text.escapes import EscapedText, visible


def escape_invisible(text: str) -> str:
    r"""Return the text with all that cannot be seen written out, such as `\x1b`; newlines and tabs stay."""
    return visible(text.replace('\r\n', '\n'))


def rich_text(text: EscapedText, style: str = '') -> Text:
    """Return escaped text for a Rich console: what was written out stands out from what was so."""
    pieces = [(piece, 'reverse' if place % 2 else '') for place, piece in enumerate(text)]
    return Text.assemble(*pieces, style=style)


def first_line(text: str, max_chars: int) -> str:
    """Return the first line that is not blank, on one line and at most so long."""
    line = next((line for line in escape_invisible(text).split('\n') if line.strip()), '').replace('\t', ' ').strip()
    return line if len(line) <= max_chars else f'{line[: max_chars - 1]}…'
