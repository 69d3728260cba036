"""Limit the usage of one delegation, counted separately although parent and siblings share the usage object."""

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
    """The usage of one delegation, including nested ones, and its limits."""

    limits: UsageLimits | None
    """The limits of the delegation; `None` if it has none of its own."""
    usage: RunUsage = field(default_factory=RunUsage)
    """The usage of the delegation so far."""
    exceeded: str | None = None
    """The message of the limit that was exceeded; `None` if none was."""
    running: int = 0
    """The number of tool calls in progress. They count if they succeed."""

    def check_before_request(self) -> None:
        """Raise if another request would exceed the limits."""
        if self.limits is not None:
            with _noting(self):
                self.limits.check_before_request(self.usage)

    def admits_extra_request(self) -> bool:
        """Return whether the limits allow a request besides the next one."""
        limit = None if self.limits is None else self.limits.request_limit
        return limit is None or self.usage.requests + 2 <= limit

    def check_after_response(self, response: ModelResponse) -> None:
        """Raise if a response has exceeded the limits, before its tool calls run."""
        if self.limits is not None:
            with _noting(self):
                self.limits.check_tokens(self.usage)
                self.limits.check_cost(self.usage, warn_if_cost_unavailable=False)
                self.limits.check_per_request_input_tokens(response.usage.input_tokens)

    def check_before_tool_call(self) -> None:
        """Raise if another tool call would exceed the limits, including calls in progress."""
        if self.limits is not None:
            projected = copy(self.usage)
            projected.tool_calls += self.running + 1
            with _noting(self):
                self.limits.check_before_tool_call(projected)

    def warn_of_unknown_cost(self) -> None:
        """Warn, as pydantic-ai does at the end of a run, if the cost is limited but unknown."""
        if self.limits is not None:
            self.limits.check_cost(self.usage)


@contextmanager
def _noting(budget: DelegationBudget) -> Generator[None]:
    """Record that a limit of this budget was exceeded: limits of the parent raise the same error."""
    try:
        yield
    except UsageLimitExceeded as error:
        budget.exceeded = str(error)
        raise


Budgets: TypeAlias = Sequence[DelegationBudget]
"""The budgets that apply to a run: its own first, then those of its parent delegations."""
