"""Grants of skills: commands that run without approval once a skill is loaded. Data model and matching. Pure.

A grant is stored only in the metadata of the tool result that loaded the skill. It is thereby part of the history, of
versions and of audit records, and a history that was truncated before it has no grant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pydantic_deep._text.simple_command import extra_arguments, matches_simple_command

GRANTS_KEY = 'grants'
"""Key of the grant in a tool result's metadata."""

LOAD_TOOL = 'load_skill'
"""The tool that loads a skill."""

COMMAND_TOOL = 'execute'
"""The tool that a grant covers."""

_NAMES = (COMMAND_TOOL, 'Bash')
"""Names of that tool in skills: ours, and that of skills for other clients."""

_ENTRY = re.compile(r'(?P<name>[^()]+)\((?P<pattern>[^()]*)\)')


class Grant(BaseModel):
    """Commands that may run without approval once a skill is loaded."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    commands: tuple[str, ...]
    """Patterns of words, such as `git status *`."""
    by: Literal['code', 'person']
    """Origin of the grant: `SkillDirectory(grants=True)` or a skill defined in code, or a person when the skill was
    loaded.
    """


def commands_of(allowed_tools: Iterable[str]) -> tuple[str, ...]:
    """Return the command patterns in a skill's `allowed-tools`, normalized and without duplicates.

    `execute(git status *)` and `Bash(git status:*)` match simple commands that start with these words; without the star
    they match only that command. A tool without a pattern matches no command, nor does a pattern without a fixed word,
    or with wildcards within words.
    """
    entries = (_ENTRY.fullmatch(entry) for entry in allowed_tools)
    patterns = (_pattern(entry['pattern']) for entry in entries if entry is not None and entry['name'] in _NAMES)
    return tuple(dict.fromkeys(filter(None, patterns)))


def is_granted(commands: Iterable[str], tool_name: str, args: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Return whether a call is one simple command that matches a pattern, without other significant arguments.

    Args:
        commands: Patterns as `commands_of` returns them.
        tool_name: The tool.
        args: The validated arguments of the call.
        schema: The JSON schema of the tool's parameters.
    """
    command: object = args.get('command')
    if tool_name != COMMAND_TOOL or not isinstance(command, str) or extra_arguments(args, schema):
        return False
    return any(matches_simple_command(pattern, command) for pattern in commands)


def parse_grant(metadata: Mapping[str, Any]) -> Grant | None:
    """Return the grant in the metadata of a tool result; `None` if there is none in the format of this release."""
    try:
        return Grant.model_validate(metadata.get(GRANTS_KEY))
    except ValidationError:
        return None


def _pattern(text: str) -> str | None:
    words = text.removesuffix(':*').split() + (['*'] if text.endswith(':*') else [])
    fixed = words[:-1] if words[-1:] == ['*'] else words
    if not fixed or not text.isprintable() or any(char in word for word in fixed for char in '*?['):
        return None
    return ' '.join(words)
