"""Events of this capability: a budget that is nearly used up, and usage that could not be counted."""

from dataclasses import dataclass
from decimal import Decimal

from pydantic_ai import CapabilityEvent

from ._types import Measure, Scope


@dataclass(kw_only=True)
class BudgetWarningEvent(CapabilityEvent, namespace='budgets', name='warning'):
    """The model was warned that a limit is nearly used up. Emitted once for each limit."""

    scope: Scope
    """Whether the limit applies to a run or a conversation."""
    measure: Measure
    """The measure that is limited."""
    limit: Decimal
    """The maximum amount, in the unit of `measure`."""
    used: Decimal
    """The amount used so far, in the unit of `measure`."""


@dataclass(kw_only=True)
class LastAnswerEvent(CapabilityEvent, namespace='budgets', name='last_answer'):
    """The budget allows about one more request: the model was instructed to give its final answer, without tools."""

    scope: Scope
    """Whether the limit applies to a run or a conversation."""
    measure: Measure
    """The measure that is limited."""
    limit: Decimal
    """The maximum amount, in the unit of `measure`."""
    used: Decimal
    """The amount used so far, in the unit of `measure`."""


@dataclass(kw_only=True)
class BudgetUnknownEvent(CapabilityEvent, namespace='budgets', name='unknown'):
    """The usage of a response is unknown, so a budget counts less than was used. Emitted once for each model."""

    measure: Measure
    """The missing measure: `cost` if the model has no known price, `tokens` if the provider reported no usage."""
    model_name: str
    """The model of the response; empty if it is unknown."""
