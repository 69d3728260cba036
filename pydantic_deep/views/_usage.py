"""Usage of tokens, requests and tool calls."""

from __future__ import annotations

from ._base import View


class Usage(View):
    """The tokens, requests and tool calls of a conversation or a run; of a difference, numbers may be negative."""

    input_tokens: int = 0
    """Tokens sent, cached ones included."""
    output_tokens: int = 0
    """Tokens that models wrote."""
    cache_read_tokens: int = 0
    """Tokens sent that a provider found in its cache."""
    cache_write_tokens: int = 0
    """Tokens sent that a provider wrote to its cache."""
    requests: int = 0
    """Responses of models."""
    tool_calls: int = 0
    """Tool calls that succeeded."""
