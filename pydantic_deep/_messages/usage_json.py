"""Usage as JSON, in versions, summaries and results of subagents."""

from __future__ import annotations

from functools import cache

from pydantic import TypeAdapter
from pydantic_ai.usage import RunUsage
from pydantic_core import to_json


def dump_usage(usage: RunUsage) -> str:
    """Return usage as JSON, without zeros."""
    return to_json({key: value for key, value in vars(usage).items() if value}).decode()


def load_usage(text: str) -> RunUsage:
    """Return usage from its JSON."""
    return usage_adapter().validate_json(text)


@cache
def usage_adapter() -> TypeAdapter[RunUsage]:
    """Return the adapter, created on first use: creating it on import would make the import slow."""
    return TypeAdapter(RunUsage)
