"""The one door to RE2: typed, on UTF-8 bytes, and with errors that say what to do.

The pattern is a string and the input is bytes, always. `re2` also takes strings as input, but then translates
every offset, which costs far more than the match. Matching is linear in the input whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, cast

import re2

from pydantic_deep_backends.errors import InvalidPatternError

# google-re2 ships no types: these two lines give it some.
_RE2_COMPILE = cast(Callable[[str, object], object], re2.compile)  # pyright: ignore[reportUnknownMemberType]
_RE2_ERROR = cast(type[Exception], re2.error)  # pyright: ignore[reportUnknownMemberType]

MAX_PROGRAM_SIZE = 20_000
"""The most instructions a compiled pattern may have. The cost of a match is at worst input times program."""

_MULTI_LINE = '(?m)'


class Match(Protocol):
    """Where a pattern matched, in bytes."""

    def start(self) -> int:
        """Return where the match begins."""
        ...


class Regex(Protocol):
    """A compiled pattern."""

    @property
    def programsize(self) -> int:
        """How many instructions it has."""
        ...

    def search(self, text: bytes, pos: int | None = None) -> Match | None:
        """Return the leftmost match that begins at `pos` or later."""
        ...

    def fullmatch(self, text: bytes) -> object | None:
        """Return the match of the whole text."""
        ...


def compile_regex(expression: str, *, shown: str, within_lines: bool) -> Regex:
    r"""Compile an RE2 expression.

    Args:
        expression: What RE2 is to compile.
        shown: The pattern as the caller wrote it, for the error.
        within_lines: Whether it is for lines: `^` and `$` match at each, and nothing in it matches `\n`; only
            `\C` (any byte) still does.

    Raises:
        InvalidPatternError: RE2 refuses it, or it is too large.
    """
    options = re2.Options()
    options.log_errors = False
    options.never_nl = within_lines
    options.never_capture = True
    prefix = _MULTI_LINE if within_lines else ''
    try:
        regex = cast(Regex, _RE2_COMPILE(prefix + expression, options))
    except _RE2_ERROR as error:
        raise InvalidPatternError(shown, _reason(expression, error)) from None
    except UnicodeEncodeError:
        raise InvalidPatternError(shown, 'it contains a lone surrogate. Use valid Unicode.') from None
    if regex.programsize > MAX_PROGRAM_SIZE:
        raise InvalidPatternError(shown, 'it is too large once compiled. Use fewer or smaller repetitions.')
    return regex


def _reason(expression: str, error: Exception) -> str:
    if re.search(r'\(\?<?[=!]', expression):
        return 'look-around is not supported (RE2). Search for a simpler pattern and check the lines found.'
    if re.search(r'\\[1-9]|\(\?P=', expression):
        return 'back-references are not supported (RE2). Search for a simpler pattern and check the lines found.'
    detail: object = error.args[0] if error.args else ''
    text = detail.decode(errors='replace') if isinstance(detail, bytes) else str(detail)
    text = text.replace(_MULTI_LINE, '', 1)  # the caller did not write it
    return f'{text}. The syntax is RE2: write it simpler, or put a backslash before a special character to find it.'
