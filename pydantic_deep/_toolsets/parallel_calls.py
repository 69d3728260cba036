"""Detection of parallel tool calls."""

from __future__ import annotations

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelResponse


def has_parallel_calls(ctx: RunContext[object]) -> bool:
    """Return whether the last response has several calls, all of which were validated before the first one ran."""
    response = next((message for message in reversed(ctx.messages) if isinstance(message, ModelResponse)), None)
    return response is not None and len(response.tool_calls) > 1
