"""Static analysis of regular expressions: a literal that every match contains, and matches of a line end.

Both results are conservative: no literal is returned for an expression that is not fully understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""
      (?P<quote>\\Q(?:(?!\\E).)*+(?:\\E)?)                     # everything in it is literal
    | (?P<any>\\[dDwWsSbBAzCnrtfva]|[.^$])                     # one character or none, not known
    | (?P<escape>\\[a-zA-Z0-9])                                # an escape whose length is not known here
    | (?P<char>\\.)                                            # a character taken literally
    | (?P<class>\[\^?\]?(?:\[:\^?[a-z]*:\]|\\.|[^\]\\])*+\])   # a set
    | (?P<repeat>[*+?]|\{[0-9]*,?[0-9]*\})                     # how often
    | (?P<open>\((?:\?P?<[^>]*>|\?:|(?!\?)))                   # a group without flags
    | (?P<flags>\()                                            # flags, such as `(?i)`
    | (?P<close>\))
    | (?P<or>\|)
    | (?P<literal>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def required_literal(pattern: str) -> bytes:
    """Return the longest ASCII literal that every matching line certainly contains; `b''` if there is none.

    Args:
        pattern: An expression that RE2 accepts.
    """
    best = current = ''
    depth = 0
    for kind, text in _tokens(pattern):
        if kind in ('quote', 'escape', 'flags') or (kind == 'or' and not depth):
            return b''
        depth += (kind == 'open') - (kind == 'close')
        if kind in ('char', 'literal') and not depth and text.isascii():
            current += text[-1]
            continue
        if kind == 'repeat' and text != '+':
            current = current[:-1]
        best = max(best, current, key=len)
        current = ''
    return max(best, current, key=len).encode()


def has_line_end(pattern: str) -> bool:
    r"""Return whether the expression contains a line end outside of a set: `\n`, or the character itself."""
    return any(text == '\\n' or ('\n' in text and kind != 'class') for kind, text in _tokens(pattern))


def _tokens(pattern: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(pattern):
        yield match.lastgroup or '', match.group()
