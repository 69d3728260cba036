"""Which commands a line seems to hold, against patterns. Pure.

A guess, as good as a page of code can make it: a shell has more ways to say a thing than any list, so that only a
sandbox is a wall. What is certainly one simple command is for `_text.simple_command` to say.
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
"""Words after which a command follows, with options, assignments and numbers in between."""

_SHELLS = frozenset(('sh', 'bash', 'dash', 'zsh', 'ksh', 'ash', 'busybox'))

_MAX_VARIANTS = 500
"""How many readings of one line are compared, so that a line made for it costs some ten milliseconds and no more."""

_MAX_NESTING = 5
"""How many shells within shells are looked into."""


def matches_any_command(pattern: str, line: str) -> bool:
    """Return whether one of the commands that a line seems to hold matches a pattern.

    A guess on both sides: it takes for commands what is none, and does not find all. What
    `is_read_whole` denies is looked at in part.
    """
    wanted = tuple(pattern.split())
    variants = islice(_variants(line[:MAX_LINE_CHARS], nesting=0), _MAX_VARIANTS)
    return any(matches_words(wanted, words, fnmatchcase) for words in variants)


def is_read_whole(line: str) -> bool:
    """Return whether all readings of a line are compared with a pattern."""
    return len(line) <= MAX_LINE_CHARS and next(islice(_variants(line, nesting=0), _MAX_VARIANTS, None), None) is None


def _variants(line: str, *, nesting: int) -> Iterator[Words]:
    """Yield the commands of a line, with and without what may stand before the name of the program."""
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
    """Yield the places where a command may begin: the first word, and after each word that only leads to one."""
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
    """Yield the arguments that a command itself takes for commands: of `sh -c`, of `eval`, of `find -exec`."""
    if command[0] in _SHELLS:
        yield from (after for flag, after in pairwise(command) if re.fullmatch('-[a-z]*c', flag))
    if command[0] == 'eval':
        yield ' '.join(command[1:])
    if command[0] == 'find':
        for index, word in enumerate(command):
            if word in ('-exec', '-execdir', '-ok', '-okdir'):
                yield ' '.join(command[index + 1 :])
