"""Text of others that goes to a terminal: what would drive the terminal is shown instead of sent."""

from __future__ import annotations

import re

from pydantic_deep_backends.paths import display_path

_DRIVING = re.compile(
    '[\x00-\x08\x0b-\x1f\x7f-\x9f'  # control characters but newline and tab, escape sequences of both kinds among them
    '\u2028\u2029'  # line separators that some terminals obey
    '\u202a-\u202e\u2066-\u2069'  # overrides of the writing direction: text that reads otherwise than it is
    '\ud800-\udfff]'  # bytes of a file name that are no text; no encoding takes them
)


def printable(text: str) -> str:
    r"""Return the text with control characters written out, such as `\x1b`; newlines and tabs stay."""
    return _DRIVING.sub(_write_out, text.replace('\r\n', '\n'))


def visible(text: str) -> str:
    r"""Return the text with all that cannot be seen written out, zero-width characters and `\r` too, for a decision.

    Newlines and tabs stay.
    """
    return '\n'.join('\t'.join(map(display_path, line.split('\t'))) for line in text.split('\n'))


def first_line(text: str, max_chars: int) -> str:
    """Return the first line that is not blank, on one line and at most so long."""
    line = next((line for line in printable(text).split('\n') if line.strip()), '').replace('\t', ' ').strip()
    return line if len(line) <= max_chars else f'{line[: max_chars - 1]}…'


def _write_out(match: re.Match[str]) -> str:
    return ascii(match.group()).strip("'")
