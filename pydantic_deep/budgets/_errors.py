"""The error of this capability."""

from __future__ import annotations

from decimal import Decimal

from pydantic_ai.exceptions import UsageLimitExceeded

from pydantic_deep.errors import DeepAgentError

from ._types import Measure, Scope, render_amount


class BudgetExceededError(DeepAgentError, UsageLimitExceeded):
    """A budget does not allow another request. None was started.

    Attributes:
        scope: Whether the limit applies to a run or a conversation.
        measure: The measure that is limited.
        limit: The maximum amount.
        used: The used amount. In a subagent it may be below the limit, as its parent needs a reserve for its answer.
        is_inherited: Whether the budget belongs to a parent run.
    """

    def __init__(
        self, *, scope: Scope, measure: Measure, limit: Decimal, used: Decimal, is_inherited: bool = False
    ) -> None:
        self.scope: Scope = scope
        self.measure: Measure = measure
        self.limit = limit
        self.used = used
        self.is_inherited = is_inherited
        owner = f'the parent {scope}' if is_inherited else f'this {scope}'
        reserve = ', and the rest is reserved for its answer' if used < limit else ''
        super().__init__(
            f'The budget of {render_amount(measure, limit)} for {owner} is used up: {render_amount(measure, used)} used{reserve}. '
            f'Raise it in `Budgets({scope}=Budget({measure}=…))` and run again with the messages so far.'
        )
