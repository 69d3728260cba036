"""Names and definitions of the tools of servers, as the model sees them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Final

from pydantic_ai import ToolDefinition

MAX_NAME: Final = 64
"""Maximum length of the name of a tool, which OpenAI and Anthropic accept."""

_INVALID: Final = re.compile(r'[^A-Za-z0-9_-]')
"""Characters that the name of a tool cannot have."""


def tool_prefix(server: str) -> str:
    """Return the prefix of the tools of a server."""
    return f'{_INVALID.sub("_", server)}_'


def name_of(server: str, tool: str, taken: Collection[str]) -> str:
    """Return the name of a tool for the model: `SERVER_TOOL`, with a digest if it is too long or taken."""
    name = tool_prefix(server) + _INVALID.sub('_', tool)
    if len(name) <= MAX_NAME and name not in taken:
        return name
    digest = sha256(f'{server}\0{tool}'.encode()).hexdigest()[:8]
    return f'{name[: MAX_NAME - 9]}_{digest}'


def is_allowed(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a pattern matches the name of a tool."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def size_of(tool: ToolDefinition) -> int:
    """Return the number of characters that the definition of a tool takes in a request."""
    return len(tool.name) + len(tool.description or '') + len(json.dumps(tool.parameters_json_schema))
