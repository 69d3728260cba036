"""Names and definitions of the tools of servers, as the model sees them. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Final

from pydantic_ai import ToolDefinition

MAX_NAME: Final = 64
"""Maximum length of the name of a tool, which OpenAI and Anthropic accept."""

RESOURCE_TOOL: Final = 'read_mcp_resource'
"""The name of the tool that reads resources."""

RESERVED: Final = frozenset((RESOURCE_TOOL, 'search_tools', 'load_capability', 'final_result'))
"""Names that tools of servers cannot have: that of our own tool, and those that pydantic-ai uses itself."""

_INVALID: Final = re.compile(r'[^A-Za-z0-9_-]')
"""Characters that the name of a tool cannot have."""

_WILDCARD: Final = re.compile(r'[*?[]')
"""The beginning of a wildcard in a pattern."""


def tool_prefix(server: str) -> str:
    """Return the prefix of the tools of a server."""
    return f'{_INVALID.sub("_", server)}_'


def names_of(
    server: str, tools: Collection[str], *, servers: Sequence[str], reserved: Collection[str]
) -> dict[str, str]:
    """Return the names of the tools of a server for the model, keyed by their names at the server: `SERVER_TOOL`.

    A name that is too long, or that other tools have or could have, gets a digest. The order of tools and the tools of
    other servers do not matter: an approved call must not reach another tool because a server has changed its list.

    Args:
        server: The name of the server.
        tools: The names of its tools.
        servers: The names of all servers.
        reserved: Names of other tools of the agent.
    """
    prefix = tool_prefix(server)
    plain = {tool: prefix + _INVALID.sub('_', tool) for tool in tools}
    counts = Counter(plain.values())

    def is_own(tool: str, name: str) -> bool:
        """Whether the name is that of no other tool."""
        is_ours = _owner_of(name, servers) in (server, None)
        return is_ours and name not in reserved and (counts[name] == 1 or name == prefix + tool)

    return {
        tool: name if len(name) <= MAX_NAME and is_own(tool, name) else _with_digest(name, server, tool)
        for tool, name in plain.items()
    }


def is_allowed(name: str, patterns: Sequence[str], *, server: str = '', servers: Sequence[str] = ()) -> bool:
    """Return whether a pattern matches the name of a tool.

    A pattern with wildcards that begins with the prefix of a server is for this server only: `git_*` does not allow the
    tools of a server `git_hub`.

    Args:
        name: The name of the tool for the model.
        patterns: The patterns.
        server: The server of the tool.
        servers: The names of all servers.
    """
    return name in patterns or any(
        fnmatchcase(name, pattern) and _owner_of(_WILDCARD.split(pattern)[0], servers) in (server, None)
        for pattern in patterns
    )


def _owner_of(name: str, servers: Sequence[str]) -> str | None:
    """Return the server with the longest prefix that a name begins with; `None` if there is none."""
    owners = [server for server in servers if name.startswith(tool_prefix(server))]
    return max(owners, key=lambda server: len(tool_prefix(server)), default=None)


def size_of(tool: ToolDefinition) -> int:
    """Return the number of characters that the definition of a tool takes in a request."""
    return len(tool.name) + len(tool.description or '') + len(json.dumps(tool.parameters_json_schema))


def _with_digest(name: str, server: str, tool: str) -> str:
    digest = sha256(f'{server}\0{tool}'.encode()).hexdigest()[:8]
    return f'{name[: MAX_NAME - 9]}_{digest}'
