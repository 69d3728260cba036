"""Usage of tokens, requests and tool calls."""

from __future__ import annotations

from ._base import View


class Usage(View):
    """The tokens, requests and tool calls of a conversation or a run. In a difference, numbers may be negative."""

    input_tokens: int = 0
    """Tokens sent to models, including cached tokens."""
    output_tokens: int = 0
    """Tokens that models generated."""
    cache_read_tokens: int = 0
    """Sent tokens that were read from a provider's cache."""
    cache_write_tokens: int = 0
    """Sent tokens that were written to a provider's cache."""
    requests: int = 0
    """The number of model responses."""
    tool_calls: int = 0
    """The number of successful tool calls."""
