"""The base class of toolsets whose tools may be unknown while a run starts."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from pydantic_ai.toolsets import AbstractToolset


class LateToolset(AbstractToolset[Any]):
    """A toolset that depends on something that may not be running. Approval rules may name tools that it lacks."""

    @property
    @abstractmethod
    def may_grow(self) -> bool:
        """Whether a later step may have tools that are unknown now."""
