"""The budget of a turn: `Budgets` for each of its runs, limited to the remaining amount."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal

from pydantic_ai import RunContext
from pydantic_ai.capabilities import CapabilityOrdering
from pydantic_ai.usage import RunUsage

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep.budgets import Budget, BudgetExceededError, Budgets, Measure
from pydantic_deep.cli.render._budget_amounts import BudgetMeasure, BudgetUsage
from pydantic_deep.streaming import BudgetEvent

_ZERO = Decimal(0)


@dataclass(kw_only=True)
class TurnBudget(BaseCapability[object]):
    """Limits the runs of one turn together, in a process with one user. Call `start_turn` before each turn."""

    id: str | None = 'turn_budget'  # an agent may have budgets of its own
    tokens: int
    """Maximum number of tokens of a turn, input and output together."""
    cost: Decimal | None
    """Maximum cost of a turn in US dollars. Requests without a known price do not count."""
    _before: RunUsage | None = field(default=None, init=False, repr=False, compare=False)

    def start_turn(self, before: RunUsage) -> None:
        """Start a turn.

        Args:
            before: The usage of the conversation before the turn.
        """
        self._before = before

    def get_ordering(self) -> CapabilityOrdering:
        """Return the position of `Budgets`."""
        return CapabilityOrdering(position='innermost')

    async def for_run(self, ctx: RunContext[object]) -> Budgets:
        """Return the budget of a run: the rest of the turn's budget.

        Raises:
            BudgetExceededError: The budget is used up.
        """
        return await Budgets(id=self.id, run=self.remaining(ctx.usage)).for_run(ctx)

    def remaining(self, used: RunUsage) -> Budget:
        """Return the rest of the budget.

        Args:
            used: The usage of the conversation so far.

        Raises:
            BudgetExceededError: The budget is used up.
        """
        tokens, cost = self._used_amount('tokens', used), self._used_amount('cost', used)
        if tokens >= self.tokens:
            raise BudgetExceededError(scope='run', measure='tokens', limit=Decimal(self.tokens), used=tokens)
        if self.cost is not None and cost >= self.cost:
            raise BudgetExceededError(scope='run', measure='cost', limit=self.cost, used=cost)
        return Budget(tokens=self.tokens - int(tokens), cost=None if self.cost is None else self.cost - cost)

    def usage(self, measure: BudgetMeasure, used: RunUsage) -> BudgetUsage:
        """Return the usage of a limit of the turn.

        Args:
            measure: The limited quantity.
            used: The usage of the conversation so far.
        """
        return BudgetUsage(measure=measure, limit=self._limit(measure), used=self._used_amount(measure, used))

    def to_turn_usage(self, measure: Measure, limit: Decimal, used: Decimal) -> BudgetUsage:
        """Convert the usage of a run's own budget to that of the turn."""
        known: BudgetMeasure = 'cost' if measure == 'cost' else 'tokens'
        limit_of_turn = self._limit(known) or limit
        return BudgetUsage(measure=known, limit=limit_of_turn, used=limit_of_turn - limit + used)

    def to_turn_event(self, event: BudgetEvent) -> BudgetEvent:
        """Convert an event of a run's own budget to the limit and usage of the turn."""
        if event.limit is None or event.used is None:
            return event
        usage = self.to_turn_usage(event.measure, Decimal(str(event.limit)), Decimal(str(event.used)))
        number = float if usage.measure == 'cost' else int
        return replace(event, measure=usage.measure, limit=number(usage.limit), used=number(usage.used))

    def _limit(self, measure: BudgetMeasure) -> Decimal:
        return Decimal(self.tokens) if measure == 'tokens' else (self.cost or _ZERO)

    def _used_amount(self, measure: BudgetMeasure, used: RunUsage) -> Decimal:
        """Return the usage of the turn, given that of its conversation."""
        of_turn = used - (used if self._before is None else self._before)
        return Decimal(of_turn.total_tokens) if measure == 'tokens' else of_turn.cost or _ZERO
