"""Deps with files, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, Unpack

from pydantic import JsonValue
from pydantic_ai.usage import UsageLimits

from pydantic_deep.deps import DeepAgentDeps, Upload
from pydantic_deep.todos import Todo
from pydantic_deep_backends import StateBackend


class DepsFields(TypedDict, total=False):
    """Further fields of `DeepAgentDeps`."""

    todos: list[Todo]
    uploads: dict[str, Upload]
    subagents: dict[str, object]
    usage_limits: UsageLimits | None
    metadata: dict[str, JsonValue]
    max_depth: int | None


def deps_for_test(files: Mapping[str, str | bytes] | None = None, **fields: Unpack[DepsFields]) -> DeepAgentDeps:
    """Return new deps with these files in a backend in memory.

    Args:
        files: The contents, keyed by absolute path. Text is encoded as UTF-8.
        **fields: Other fields of `DeepAgentDeps`.
    """
    return DeepAgentDeps(backend=StateBackend(files), **fields)
