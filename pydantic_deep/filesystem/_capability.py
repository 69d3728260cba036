"""What the agent plugs in: files as one capability, for any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic_ai import AgentToolset, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_deep_backends.protocol import BackendProtocol

from ._toolset import build_toolset


@dataclass(kw_only=True)
class Filesystem(AbstractCapability[object]):
    """Tools that work on the files of a backend: the one given, else `deps.backend`, else the run's workspace."""

    id: str | None = 'filesystem'
    backend: BackendProtocol | Callable[[RunContext[object]], BackendProtocol] | None = None
    """Where the files are; `None` for `deps.backend` or the run's workspace."""

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset."""
        return build_toolset(self.backend)
