"""Usage of tokens and requests."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic_ai.usage import RunUsage


class UsageShape(BaseModel):
    """What was used."""

    input_tokens: int = 0
    """Sent, cached ones included."""
    output_tokens: int = 0
    """Written by models."""
    cache_read_tokens: int = 0
    """Sent and found in a provider's cache."""
    cache_write_tokens: int = 0
    """Sent and written to a provider's cache."""
    requests: int = 0
    """Answers of models."""
    tool_calls: int = 0
    """Calls that ran."""


def build_usage(usage: RunUsage) -> UsageShape:
    """Build the usage of a run or a conversation."""
    return UsageShape(**{name: getattr(usage, name) for name in UsageShape.model_fields})
