"""The budget of a turn: `Budgets` for each of its runs, with what the runs before it have left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.usage import RunUsage

from pydantic_deep.budgets import (
    Budget,
    BudgetExceededError,
    Budgets,
    Measure,
)
from pydantic_deep.cli.render._budget_amounts import BudgetMeasure, BudgetUsage
from pydantic_deep.streaming import BudgetEvent

_ZERO = Decimal(0)


@dataclass(kw_only=True)
class TurnBudget(AbstractCapability[object]):
    """The budget of a turn, in a process that serves one person. Call `start_turn` at the beginning of each."""

    id: str | None = 'budgets'
    tokens: int
    """Tokens, sent and written together."""
    cost: Decimal | None
    """US dollars, as far as prices are known."""
    _before: RunUsage | None = field(default=None, init=False, repr=False, compare=False)

    def start_turn(self, before: RunUsage) -> None:
        """Start a turn.

        Args:
            before: The usage of the conversation before the turn.
        """
        self._before = before

    def get_ordering(self) -> CapabilityOrdering:
        """Stand where `Budgets` stand."""
        return CapabilityOrdering(position='innermost')

    async def for_run(self, ctx: RunContext[object]) -> Budgets:
        """Return the budget of a run: what is left of that of the turn.

        Raises:
            BudgetExceededError: Nothing is left.
        """
        return await Budgets(run=self.remaining(ctx.usage)).for_run(ctx)

    def remaining(self, used: RunUsage) -> Budget:
        """Return the rest of the budget.

        Args:
            used: What the conversation has used.

        Raises:
            BudgetExceededError: Nothing is.
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
            measure: The limit.
            used: What the conversation has used.
        """
        return BudgetUsage(measure=measure, limit=self._limit(measure), used=self._used_amount(measure, used))

    def to_turn_usage(self, measure: Measure, limit: Decimal, used: Decimal) -> BudgetUsage:
        """Convert the usage of a run's own budget to that of the turn."""
        known: BudgetMeasure = 'cost' if measure == 'cost' else 'tokens'
        limit_of_turn = self._limit(known) or limit
        return BudgetUsage(measure=known, limit=limit_of_turn, used=limit_of_turn - limit + used)

    def to_turn_event(self, event: BudgetEvent) -> BudgetEvent:
        """Convert an event of a run's own budget to one of the turn's."""
        if event.limit is None or event.used is None:
            return event
        usage = self.to_turn_usage(event.measure, Decimal(str(event.limit)), Decimal(str(event.used)))
        number = float if usage.measure == 'cost' else int
        return replace(event, measure=usage.measure, limit=number(usage.limit), used=number(usage.used))

    def _limit(self, measure: BudgetMeasure) -> Decimal:
        return Decimal(self.tokens) if measure == 'tokens' else (self.cost or _ZERO)

    def _used_amount(self, measure: BudgetMeasure, used: RunUsage) -> Decimal:
        """Return what the turn has used when its conversation has used so much."""
        before = used if self._before is None else self._before
        if measure == 'tokens':
            return Decimal(used.total_tokens - before.total_tokens)
        return (used.cost or _ZERO) - (before.cost or _ZERO)
