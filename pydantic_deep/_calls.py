"""What a run knows of its calls."""

from __future__ import annotations

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelResponse


def has_calls_beside(ctx: RunContext[object]) -> bool:
    """Return whether the last response has several calls: all were checked before the first one ran."""
    response = next((each for each in reversed(ctx.messages) if isinstance(each, ModelResponse)), None)
    return response is not None and len(response.tool_calls) > 1
