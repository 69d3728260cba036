"""Which calls `allowed-tools` of a skill allows beforehand. Pure; in doubt a call is not allowed, and a person asked."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic_deep._simple_command import matches_simple_command

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
    words = pattern.removesuffix(':*').split() + (['*'] if pattern.endswith(':*') else [])
    fixed = words[:-1] if words[-1:] == ['*'] else words
    if not fixed or any(char in word for word in fixed for char in '*?['):
        return False
    return matches_simple_command(' '.join(words), command)
