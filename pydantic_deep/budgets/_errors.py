"""The error of the room."""

from __future__ import annotations

from decimal import Decimal

from pydantic_ai.exceptions import UsageLimitExceeded

from pydantic_deep.errors import DeepAgentError

from ._types import Measure, Scope, render_amount


class BudgetExceededError(DeepAgentError, UsageLimitExceeded):
    """A budget has no room for another request; none was begun.

    Attributes:
        scope: Whose budget it is.
        measure: What it limits.
        limit: Its limit.
        used: What was used of it. In a subagent it may be less than the limit: what its parent needs to answer is kept.
        is_inherited: Whether it is the budget of a run above this one.
    """

    def __init__(
        self, *, scope: Scope, measure: Measure, limit: Decimal, used: Decimal, is_inherited: bool = False
    ) -> None:
        self.scope: Scope = scope
        self.measure: Measure = measure
        self.limit = limit
        self.used = used
        self.is_inherited = is_inherited
        whose = f'the {scope} above' if is_inherited else f'this {scope}'
        kept = ', and the rest is kept for the answer there' if used < limit else ''
        super().__init__(
            f'The budget of {render_amount(measure, limit)} for {whose} is used up: {render_amount(measure, used)} used{kept}. '
            f'Raise it in `Budgets({scope}=Budget({measure}=…))` and run again with the messages so far.'
        )
