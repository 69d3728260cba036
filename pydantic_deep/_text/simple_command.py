"""Command lines: parsing as in a POSIX shell, and a conservative check for simple commands. Pure.

The check for running a command without approval errs on the side of refusal: the line must consist of words and quotes
only. Everything that lets commands run without approval uses this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast

from pydantic_core import to_jsonable_python

Words = tuple[str, ...]

_ACTIVE = frozenset('*?[]{}~!^#%')
"""Characters with a meaning outside of quotes in some shell, besides those that `Reader` interprets."""

RESERVED = frozenset(
    (
        *('if', 'then', 'elif', 'else', 'fi', 'case', 'esac', 'for', 'while', 'until', 'do', 'done', 'in'),
        *('function', 'select', 'time', 'coproc', '{', '}', '!', '[[', ']]'),
    )
)
"""Reserved words of a shell at the start of a command (POSIX and bash)."""

TIMEOUT = 'timeout_seconds'
"""The argument of `execute` that does not affect the meaning of a command."""

MAX_LINE_CHARS = 10_000
"""Maximum length of a line that is examined. Longer ones are scripts, for which no pattern was written."""


def matches_simple_command(pattern: str, line: str) -> bool:
    """Return whether a line is certainly one simple command, and matches a pattern.

    A line with anything but words and quotes does not match: operators, newlines, substitutions, expansions,
    redirections, assignments, backslashes, wildcards, comments, control characters, unclosed quotes. A wildcard within
    a word of the pattern matches within one path component, and does not match `..`.
    """
    if len(line) > MAX_LINE_CHARS:
        return False
    read = Reader(line).read()
    if not read.is_plain or len(read.commands) != 1:
        return False
    (words,) = read.commands
    return (
        '=' not in words[0]
        and words[0] not in RESERVED
        and matches_words(tuple(pattern.split()), words, _matches_by_component)
    )


def extra_arguments(args: Mapping[str, Any], schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the arguments of a call, besides its `command`, that affect the command and that a pattern does not cover.

    An environment, a working directory or an input affects a command. Omitted are the timeout, and arguments with the
    default value that the tool declares, because validation fills these in.

    Args:
        args: The validated arguments.
        schema: The JSON schema of the parameters.
    """
    properties: Mapping[str, Any] = schema.get('properties', {})
    others = args.keys() - {'command', TIMEOUT}
    return frozenset(name for name in others if not _is_default(args[name], properties.get(name)))


def _is_default(value: object, declared: object) -> bool:
    """Return whether a value is the declared default. `1` equals neither `True` nor `1.0` here."""
    if not isinstance(declared, dict) or 'default' not in declared:
        return False
    default: object = cast('dict[str, object]', declared)['default']
    return repr(to_jsonable_python(value, bytes_mode='base64', fallback=repr)) == repr(default)


def matches_words(pattern: Words, words: Words, matches_word: Callable[[str, str], bool]) -> bool:
    """Return whether words match a pattern word by word; a final `*` matches any number of further words."""
    if pattern[-1:] == ('*',):
        pattern = pattern[:-1]
        words = words[: len(pattern)]
    return len(pattern) == len(words) and all(map(matches_word, words, pattern))


def _matches_by_component(word: str, pattern: str) -> bool:
    """Return whether a word matches a pattern; wildcards do not match slashes."""
    names, wanted = word.split('/'), pattern.split('/')
    return len(names) == len(wanted) and all(
        name == want or (name != '..' and fnmatchcase(name, want)) for name, want in zip(names, wanted, strict=True)
    )


@dataclass(kw_only=True)
class Reading:
    """The result of parsing a line."""

    commands: list[Words] = field(default_factory=list[Words])
    """The commands as words without quotes; none is empty."""
    is_plain: bool = True
    """Whether the line contains only words and quotes."""


class Reader:
    """A parser of one line, in linear time."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._result = Reading()
        self._words: list[str] = []
        self._word: str | None = None
        self._quote = ''
        self._is_target = False  # whether the next word is the target of a redirection
        # Open substitutions: the closing character of each, and the quote around it.
        self._outer: list[tuple[str, str]] = []

    def read(self) -> Reading:
        characters = iter(self._line)
        for char in characters:
            if not char.isprintable() and char != '\t':
                self._result.is_plain = False  # no pattern can be assumed to intend an invisible character
            if char == '\\' and self._quote != "'":
                self._result.is_plain = False
                escaped = next(characters, '')
                self._append(escaped if escaped != '\n' else '')
            elif self._quote:
                self._quoted(char)
            else:
                self._bare(char)
        self._end_command()
        if self._quote or self._outer:
            self._result.is_plain = False
        return self._result

    def _quoted(self, char: str) -> None:
        if char == self._quote:
            self._quote = ''
        elif self._quote == '"' and char in '$`':
            self._expand(char)
        elif self._quote == '"' and char == '(' and (self._word or '').endswith('$'):
            self._open(')')
        else:
            self._append(char)

    def _bare(self, char: str) -> None:
        if char in ' \t':
            self._end_word()
        elif char in '\'"':
            self._quote = char
            self._append('')
        elif char in '$`':
            self._expand(char)
        elif char in '\n\r;&|()<>':
            self._operator(char)
        else:
            self._result.is_plain = self._result.is_plain and char not in _ACTIVE
            self._append(char)

    def _expand(self, char: str) -> None:
        self._result.is_plain = False
        if char == '$':
            self._append(char)
        elif self._outer and self._outer[-1][0] == '`':
            self._close()
        else:
            self._open('`')

    def _operator(self, char: str) -> None:
        self._result.is_plain = False
        if char in '<>':
            if (self._word or '').isdigit():
                self._word = None  # the number of the redirected descriptor
            self._end_word()
            self._is_target = True
        elif char == '&' and self._is_target and self._word is None:
            return  # `>&`
        elif char == '(':
            self._open(')')
        elif char == ')' and self._outer and self._outer[-1][0] == ')':
            self._close()
        else:
            self._end_command()

    def _open(self, closing: str) -> None:
        """Start the commands of a substitution or a subshell."""
        self._end_command()
        self._outer.append((closing, self._quote))
        self._quote = ''

    def _close(self) -> None:
        self._end_command()
        self._quote = self._outer.pop()[1]

    def _append(self, text: str) -> None:
        self._word = (self._word or '') + text

    def _end_word(self) -> None:
        if self._word is not None:
            if not self._is_target:
                self._words.append(self._word)
            self._is_target = False
        self._word = None

    def _end_command(self) -> None:
        self._end_word()
        self._is_target = False
        if self._words:
            self._result.commands.append(tuple(self._words))
        self._words = []
