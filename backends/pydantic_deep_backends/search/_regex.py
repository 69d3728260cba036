"""Typed access to RE2, on UTF-8 bytes, with errors that suggest a fix.

The pattern is always a string, and the input always bytes. `re2` also accepts strings as input, but translates every
offset then, which costs far more than the match. Matching is linear in the input for every pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol, cast

import re2

from pydantic_deep_backends.errors import InvalidPatternError

# google-re2 has no type information, so these two lines add it.
_RE2_COMPILE = cast(Callable[[str, object], object], re2.compile)  # pyright: ignore[reportUnknownMemberType]
_RE2_ERROR = cast(type[Exception], re2.error)  # pyright: ignore[reportUnknownMemberType]

MAX_PROGRAM_SIZE = 20_000
"""Maximum number of instructions in a compiled pattern. A match costs at most input size times program size."""

_MULTI_LINE = '(?m)'


class Match(Protocol):
    """A match of a pattern, in bytes."""

    def start(self) -> int:
        """Return the offset of the match."""
        ...


class Regex(Protocol):
    """A compiled RE2 pattern."""

    @property
    def programsize(self) -> int:
        """Number of instructions in the compiled pattern."""
        ...

    def search(self, text: bytes, pos: int | None = None) -> Match | None:
        """Return the leftmost match that starts at `pos` or later."""
        ...

    def fullmatch(self, text: bytes) -> object | None:
        """Return the match of the whole text."""
        ...


def compile_regex(expression: str, *, shown: str, within_lines: bool) -> Regex:
    r"""Compile an RE2 expression.

    Args:
        expression: The RE2 source.
        shown: The pattern as the caller wrote it, for the error.
        within_lines: Whether it matches single lines: `^` and `$` match at each line, and nothing matches `\n` except
            `\C` (any byte).

    Raises:
        InvalidPatternError: RE2 rejects the expression, or it is too large.
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
