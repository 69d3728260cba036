"""Text of others that goes to a terminal: what would drive the terminal is shown instead of sent."""

from __future__ import annotations

import re

from rich.text import Text

from pydantic_deep._escapes import EscapedText

_DRIVING = re.compile(
    '[\x00-\x08\x0b-\x1f\x7f-\x9f'  # control characters but newline and tab, escape sequences of both kinds among them
    '\u2028\u2029'  # line separators that some terminals obey
    '\u202a-\u202e\u2066-\u2069'  # overrides of the writing direction: text that reads otherwise than it is
    '\ud800-\udfff]'  # bytes of a file name that are no text; no encoding takes them
)


def printable(text: str) -> str:
    r"""Return the text with control characters written out, such as `\x1b`; newlines and tabs stay."""
    return _DRIVING.sub(_write_out, text.replace('\r\n', '\n'))


def rich_text(text: EscapedText, style: str = '') -> Text:
    """Return escaped text for a Rich console: what was written out stands out from what was so."""
    pieces = [(piece, 'reverse' if place % 2 else '') for place, piece in enumerate(text)]
    return Text.assemble(*pieces, style=style)


def first_line(text: str, max_chars: int) -> str:
    """Return the first line that is not blank, on one line and at most so long."""
    line = next((line for line in printable(text).split('\n') if line.strip()), '').replace('\t', ' ').strip()
    return line if len(line) <= max_chars else f'{line[: max_chars - 1]}…'


def _write_out(match: re.Match[str]) -> str:
    return ascii(match.group()).strip("'")
