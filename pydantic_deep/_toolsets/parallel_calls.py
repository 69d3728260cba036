"""Whether the calls of a response run in parallel."""

from __future__ import annotations

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelResponse


def has_parallel_calls(ctx: RunContext[object]) -> bool:
    """Return whether the last response has several calls: all were validated before the first one ran."""
    response = next((each for each in reversed(ctx.messages) if isinstance(each, ModelResponse)), None)
    return response is not None and len(response.tool_calls) > 1
