"""Grants of skills: commands that run without asking once a skill is loaded. Shapes and matching. Pure.

A grant is in the metadata of the tool result that loaded the skill, and nowhere else: so it is in the history, in
versions and in audit records, and a history that was cut before it has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pydantic_deep._text.simple_command import extra_arguments, matches_simple_command

GRANTS_KEY = 'grants'
"""The key of a tool result's metadata under which a grant is."""

LOAD_TOOL = 'load_skill'
"""The tool that loads a skill."""

COMMAND_TOOL = 'execute'
"""The tool whose calls a grant is for."""

_NAMES = (COMMAND_TOOL, 'Bash')
"""What skills call it: by our name, and as those written for other clients do."""

_ENTRY = re.compile(r'(?P<name>[^()]+)\((?P<pattern>[^()]*)\)')


class Grant(BaseModel):
    """Commands that a loaded skill lets run without asking."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    commands: tuple[str, ...]
    """The patterns, word by word: `git status *`."""
    by: Literal['code', 'person']
    """Who granted them: `SkillDirectory(grants=True)` or a skill made in code, or a person when the skill was loaded."""


def commands_of(allowed_tools: Iterable[str]) -> tuple[str, ...]:
    """Return the commands that `allowed-tools` of a skill name by pattern, in one spelling and without repetition.

    `execute(git status *)` and `Bash(git status:*)` name simple commands that begin with these words; without the star
    they name that command only. A tool by its name alone names no command, nor does a pattern without a fixed word,
    or with wildcards within words.
    """
    found = (_ENTRY.fullmatch(entry) for entry in allowed_tools)
    patterns = (_pattern(entry['pattern']) for entry in found if entry is not None and entry['name'] in _NAMES)
    return tuple(dict.fromkeys(filter(None, patterns)))


def is_granted(commands: Iterable[str], tool_name: str, args: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Return whether a call is one simple command that a pattern names, and has nothing beside it that counts.

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
    """Return the grant in the metadata of a tool result; `None` if there is none that this release writes."""
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
