"""Escaping of untrusted text for a terminal: invisible characters and control characters."""

from __future__ import annotations

from rich.text import Text

from pydantic_deep._text.escapes import EscapedText, readable, visible


def escape_invisible(text: str) -> str:
    r"""Return the text with invisible characters escaped, such as `\x1b`. Newlines and tabs are not escaped."""
    return visible(text.replace('\r\n', '\n'))


def escape_prose(text: str) -> str:
    """Return what people and models write to each other like `escape_invisible`, with emoji and words as they are meant."""
    return readable(text.replace('\r\n', '\n'))


def rich_text(text: EscapedText, style: str = '') -> Text:
    """Return escaped text for a Rich console. Escapes are printed in reverse video."""
    pieces = [(piece, 'reverse' if place % 2 else '') for place, piece in enumerate(text)]
    return Text.assemble(*pieces, style=style)


def describe_error(error: Exception) -> str:
    """Return the sentence of an error. Errors of the operating system have the name of their file instead of a number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f'{error.filename}: {error.strerror}.' if error.filename else f'{error.strerror}.'


def first_line(text: str, max_chars: int) -> str:
    """Return the first nonblank line, escaped, and truncated to a maximum number of characters."""
    return _first_line(escape_invisible(text), max_chars)


def first_line_of_prose(text: str, max_chars: int) -> str:
    """Return the first nonblank line like `first_line`, escaped by `escape_prose`."""
    return _first_line(escape_prose(text), max_chars)


def _first_line(escaped: str, max_chars: int) -> str:
    line = next((line for line in escaped.split('\n') if line.strip()), '').replace('\t', ' ').strip()
    return line if len(line) <= max_chars else f'{line[: max_chars - 1]}…'
