"""What can be said about a regular expression by reading it: a literal it needs, whether it asks for a line end.

Both answers are cautious: an expression that is not understood has no certain literal.
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
    """Return ASCII bytes that are part of every line the expression matches, the longest; `b''` if none is certain.

    Args:
        pattern: An expression that RE2 has accepted.
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
    r"""Return whether the expression asks for a line end outside of a set: `\n`, or the character itself."""
    return any(text == '\\n' or ('\n' in text and kind != 'class') for kind, text in _tokens(pattern))


def _tokens(pattern: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(pattern):
        yield match.lastgroup or '', match.group()
