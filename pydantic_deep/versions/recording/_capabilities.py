"""Helpers that inspect the capabilities of an agent: their origin, their hooks, and a missing `ToolFailures`."""

from __future__ import annotations

from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability

from pydantic_deep.failures import ToolFailures


def is_framework(capability: AbstractCapability[Any]) -> bool:
    """Return whether a capability belongs to this framework, or is added by pydantic-ai itself."""
    return type(capability).__module__.startswith(('pydantic_deep.', 'pydantic_ai.capabilities._'))


def overrides(capability: AbstractCapability[Any], *names: str) -> bool:
    """Return whether a capability overrides any of these methods."""
    return any(getattr(type(capability), name) is not getattr(AbstractCapability, name) for name in names)


def missing_failures(agent: AbstractAgent[Any, Any]) -> list[ToolFailures]:
    """Return a `ToolFailures` capability if the agent has none, so that an exception of a tool never ends a turn."""
    own: list[object] = []
    agent.root_capability.apply(own.append)
    return [] if any(isinstance(leaf, ToolFailures) for leaf in own) else [ToolFailures()]
