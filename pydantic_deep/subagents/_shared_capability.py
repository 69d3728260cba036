"""`Shared`: a capability that subagents have too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, WrapperCapability

from pydantic_deep.extensions import SupportsInheritance


@dataclass
class Shared(WrapperCapability[Any]):
    """Marks a capability that is carried on into every subagent, at any depth: `Shared(MyHooks())`.

    It is transparent: it has the `id` and does the work of the capability in it. A subagent's run gets the capability
    as you made it, with a state of its own, not the parent's state of its run.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._as_made = self  # a run works with a copy, which carries this on

    def for_subagent(self) -> AbstractCapability[Any]:
        """Return the capability for the run of a subagent: this one, as it was made.

        What is carried on anyway is carried on in its own way, which may know of this run: under its `id`, `Approvals`
        would take the place of those of the subagent, and budgets are those of this run.
        """
        return self.wrapped.for_subagent() if isinstance(self.wrapped, SupportsInheritance) else self._as_made
