"""`Shared`: pass a capability on to subagents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, WrapperCapability

from pydantic_deep._checks import check_object
from pydantic_deep.extensions import SupportsInheritance


@dataclass
class Shared(WrapperCapability[Any]):
    """Passes a capability on to every subagent, at any depth: `Shared(MyHooks())`.

    The wrapper is transparent: it has the `id` and the behavior of the wrapped capability. The run of a subagent gets
    the capability as it was created, with its own run state and not that of the parent.
    """

    def __post_init__(self) -> None:
        check_object('wrapped', self.wrapped, AbstractCapability, 'For example, `Shared(MyHooks())`.')
        super().__post_init__()
        self._original = self  # `for_run` returns a copy, which retains this reference

    def for_subagent(self) -> AbstractCapability[Any]:
        """Return the capability for the run of a subagent, as it was created.

        Capabilities that support inheritance are inherited in their own way, which may depend on the run: `Approvals`
        with the same `id` would replace those of the subagent, and budgets share their account.
        """
        return self.wrapped.for_subagent() if isinstance(self.wrapped, SupportsInheritance) else self._original
