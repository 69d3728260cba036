"""What the agent plugs in: subagents as one capability, for any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability

from ._types import Subagent

Builder: TypeAlias = Callable[[Subagent], AbstractAgent[Any, Any]]
"""Makes the agent that a description is of."""


@dataclass
class Subagents(AbstractCapability[object]):
    """Work handed to agents with a history of their own, by the tool `task`."""

    subagents: Sequence[Subagent] = ()
    """The subagents that there are, besides the general one."""
    _: KW_ONLY
    build: Builder | None = None
    """Makes the agent of a `Subagent` that is not ready; without it a plain `pydantic_ai.Agent`."""
    general_purpose: bool = True
    """Whether there is one named `general-purpose`, which is the agent itself."""
    id: str | None = 'subagents'
