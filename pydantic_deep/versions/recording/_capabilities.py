"""Questions about the capabilities of an agent: where one comes from, which hooks it has, and which one is missing."""

from __future__ import annotations

from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability

from pydantic_deep.failures import ToolFailures


def is_framework(capability: AbstractCapability[Any]) -> bool:
    """Return whether a capability is of this framework, or one that pydantic-ai adds by itself."""
    return type(capability).__module__.startswith(('pydantic_deep.', 'pydantic_ai.capabilities._'))


def overrides(capability: AbstractCapability[Any], *names: str) -> bool:
    """Return whether a capability has a method of its own of any of these names."""
    return any(getattr(type(capability), name) is not getattr(AbstractCapability, name) for name in names)


def missing_failures(agent: AbstractAgent[Any, Any]) -> list[ToolFailures]:
    """Return a `ToolFailures` capability if the agent has none, so that an exception of a tool never ends a turn."""
    own: list[object] = []
    agent.root_capability.apply(own.append)
    return [] if any(isinstance(each, ToolFailures) for each in own) else [ToolFailures()]
