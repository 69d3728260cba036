"""The error of this capability."""

from __future__ import annotations

from pydantic_deep.errors import DeepAgentError


class McpConfigError(DeepAgentError, ValueError):
    """The configuration of an MCP server is invalid, or a variable that it uses is not set."""
