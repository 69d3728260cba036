"""What one delegation may use: counted apart from its parent and siblings, with whom it shares the usage object."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RunUsage, UsageLimits


@dataclass(kw_only=True)
class DelegationBudget:
    """The use of one delegation and of all that is below it, and its limits."""

    limits: UsageLimits | None
    """What it may use; `None` for no limits of its own."""
    usage: RunUsage = field(default_factory=RunUsage)
    """What it has used."""
    exceeded: str | None = None
    """Which limit was crossed, in words; `None` while none is."""
    running: int = 0
    """How many tool calls are running, which will count if they succeed."""

    def check_before_request(self) -> None:
        """Refuse a request that would be too much."""
        if self.limits is not None:
            with _noting(self):
                self.limits.check_before_request(self.usage)

    def check_after_response(self, response: ModelResponse) -> None:
        """Refuse to act on a response that was too much."""
        if self.limits is not None:
            with _noting(self):
                self.limits.check_tokens(self.usage)
                self.limits.check_cost(self.usage, warn_if_cost_unavailable=False)
                self.limits.check_per_request_input_tokens(response.usage.input_tokens)

    def check_before_tool_call(self) -> None:
        """Refuse a tool call that would be too much, those that are running counted in."""
        if self.limits is not None:
            projected = copy(self.usage)
            projected.tool_calls += self.running + 1
            with _noting(self):
                self.limits.check_before_tool_call(projected)

    def warn_of_what_is_unknown(self) -> None:
        """Warn, as pydantic-ai does at the end of a run, of a limit of cost where no cost is known."""
        if self.limits is not None:
            self.limits.check_cost(self.usage)


@contextmanager
def _noting(budget: DelegationBudget) -> Generator[None]:
    """Note in the budget that a limit of its own was crossed: limits of the parent raise the same error."""
    try:
        yield
    except UsageLimitExceeded as error:
        budget.exceeded = str(error)
        raise


Budgets: TypeAlias = Sequence[DelegationBudget]
"""Those that a run draws on: its own first, then those of the delegations above it."""
