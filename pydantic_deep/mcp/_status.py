"""The state of servers, for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class McpToolStatus:
    """A tool of a server."""

    name: str
    """The name that the model sees."""
    effect: Literal['read', 'external']
    """Whether the tool only reads, by its annotations."""
    needs_approval: bool
    """Whether each call needs approval."""


@dataclass(frozen=True, kw_only=True)
class McpServerStatus:
    """A server, and whether it answers."""

    name: str
    """The name in the configuration."""
    label: str
    """The command line or the address, without values of variables."""
    error: str | None
    """Why the server is not connected; `None` if it is."""
    tools: tuple[McpToolStatus, ...]
    """Its tools. They are empty if the server has never been connected."""
    resources: int
    """The number of its resources and templates of resources."""
