"""Budgets: limits for runs and conversations, with a warning and a final response, for any pydantic-ai agent."""

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
