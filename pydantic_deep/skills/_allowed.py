"""Which calls `allowed-tools` of a skill allows beforehand. Pure; in doubt a call is not allowed, and a person asked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

TOOL_BY_NAME = {
    'Bash': 'execute',
    'Read': 'read_file',
    'Write': 'write_file',
    'Edit': 'edit_file',
    'Grep': 'grep',
    'Glob': 'glob',
    'LS': 'ls',
}
"""Our tools by the names that skills written for other clients use."""

_ENTRY = re.compile(r'(?P<name>[^()]+)(?:\((?P<pattern>[^()]*)\))?')

_PLAIN = re.compile(r"""[\w ./:=,@+%"'-]*""")
"""A command of nothing but words and quotes: no operators, expansions, redirections, wildcards, escapes, line ends."""


def is_allowed(entry: str, tool_name: str, args: Mapping[str, object]) -> bool:
    """Return whether an entry of `allowed-tools` allows a call.

    A name allows the tool; `execute(git status *)` or `Bash(git status:*)` allows one simple command that begins with
    these words, and without the star that command only. Brackets of other tools mean nothing here and allow nothing.
    """
    parsed = _ENTRY.fullmatch(entry)
    if parsed is None or TOOL_BY_NAME.get(parsed['name'], parsed['name']) != tool_name:
        return False
    if parsed['pattern'] is None:
        return True
    command = args.get('command')
    return tool_name == 'execute' and isinstance(command, str) and matches_command(parsed['pattern'], command)


def matches_command(pattern: str, command: str) -> bool:
    """Return whether a command is one simple command for certain, and matches a pattern word by word."""
    wanted = pattern.removesuffix(':*').split() + (['*'] if pattern.endswith(':*') else [])
    is_prefix = wanted[-1:] == ['*']
    wanted = wanted[:-1] if is_prefix else wanted
    words = _words(command)
    if not words or not wanted or '=' in words[0] or any('*' in word for word in wanted):
        return False
    return words[: len(wanted)] == wanted and (is_prefix or len(words) == len(wanted))


def _words(command: str) -> list[str]:
    """Return the words of a simple command; none if it is anything more."""
    if not command.isascii() or _PLAIN.fullmatch(command) is None:
        return []
    try:
        return shlex.split(command)
    except ValueError:  # a quote that does not close
        return []
