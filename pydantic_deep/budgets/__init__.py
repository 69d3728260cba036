"""Budgets: what a run and a conversation may use, a warning before the end, and a clean stop. For any pydantic-ai agent."""

from ._capability import Budgets
from ._errors import BudgetExceededError
from ._events import BudgetUnknownEvent, BudgetWarningEvent, LastAnswerEvent
from ._types import Budget, Measure, Scope

__all__ = (
    'Budget',
    'BudgetExceededError',
    'BudgetUnknownEvent',
    'BudgetWarningEvent',
    'Budgets',
    'LastAnswerEvent',
    'Measure',
    'Scope',
)
