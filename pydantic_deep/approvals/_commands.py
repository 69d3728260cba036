"""Find the commands in a shell line and match them against patterns. Pure.

This is a heuristic: shells can express a command in more ways than any parser lists, and only a sandbox is a security
boundary. `_text.simple_command` decides whether a line is certainly one simple command.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice, pairwise

from pydantic_deep._text.simple_command import MAX_LINE_CHARS, RESERVED, Reader, Words, matches_words

_ASSIGNMENT = re.compile(r'[A-Za-z_][A-Za-z0-9_]*\+?=')
_NUMBER = re.compile(r'[0-9.]+[smhd]?')

_RUNNERS = frozenset(
    (
        'command',
        'builtin',
        'exec',
        'eval',
        'nohup',
        'setsid',
        'nice',
        'env',
        'sudo',
        'doas',
        'xargs',
        'timeout',
        'stdbuf',
    )
)
_PREFIXES = RESERVED | _RUNNERS
"""Words that a command may follow, with options, assignments and numbers in between."""

_SHELLS = frozenset(('sh', 'bash', 'dash', 'zsh', 'ksh', 'ash', 'busybox'))

_MAX_VARIANTS = 500
"""Maximum number of readings of one line to compare. It bounds the time for a malicious line to about ten milliseconds.
"""

_MAX_NESTING = 5
"""Maximum depth of shells within shells."""


def matches_any_command(pattern: str, line: str) -> bool:
    """Return whether any command found in a line matches a pattern.

    The heuristic has false positives and false negatives. It covers only a part of a line that is not `is_read_whole`.
    """
    wanted = tuple(pattern.split())
    variants = islice(_variants(line[:MAX_LINE_CHARS], nesting=0), _MAX_VARIANTS)
    return any(matches_words(wanted, words, fnmatchcase) for words in variants)


def is_read_whole(line: str) -> bool:
    """Return whether `matches_any_command` compares every reading of a line."""
    return len(line) <= MAX_LINE_CHARS and next(islice(_variants(line, nesting=0), _MAX_VARIANTS, None), None) is None


def _variants(line: str, *, nesting: int) -> Iterator[Words]:
    """Yield the commands of a line, with and without prefixes such as `sudo` before the program."""
    for words in Reader(line).read().commands:
        for index in _starts(words):
            program = posixpath.basename(words[index])
            command = (program, *words[index + 1 :])
            yield command
            yield words[index:]
            if nesting < _MAX_NESTING:
                for script in _scripts(command):
                    yield from _variants(script, nesting=nesting + 1)


def _starts(words: Words) -> Iterator[int]:
    """Yield the indexes at which a command may begin: the first word, and each word after a prefix."""
    before = ''
    for index, word in enumerate(words):
        yield index
        leads = posixpath.basename(word) in _PREFIXES or _ASSIGNMENT.match(word) is not None
        follows = index > 0 and (
            before == 'function' or '-' in (word[:1], before[:1]) or _NUMBER.fullmatch(word) is not None
        )
        if not leads and not follows:
            return
        before = word


def _scripts(command: Words) -> Iterator[str]:
    """Yield the arguments that contain further commands: of `sh -c`, `eval` and `find -exec`."""
    if command[0] in _SHELLS:
        yield from (after for flag, after in pairwise(command) if re.fullmatch('-[a-z]*c', flag))
    if command[0] == 'eval':
        yield ' '.join(command[1:])
    if command[0] == 'find':
        for index, word in enumerate(command):
            if word in ('-exec', '-execdir', '-ok', '-okdir'):
                yield ' '.join(command[index + 1 :])
