"""What the room tells the world: a budget that comes to its end, and what could not be counted."""

from dataclasses import dataclass
from decimal import Decimal

from pydantic_ai import CapabilityEvent

from ._types import Measure, Scope


@dataclass(kw_only=True)
class BudgetWarningEvent(CapabilityEvent, namespace='budgets', name='warning'):
    """So much of a limit is used that the model was told; once for each limit."""

    scope: Scope
    """Whose budget it is."""
    measure: Measure
    """What it limits."""
    limit: Decimal
    """Its limit."""
    used: Decimal
    """What was used of it."""


@dataclass(kw_only=True)
class LastAnswerEvent(CapabilityEvent, namespace='budgets', name='last_answer'):
    """There is room for about one request more: the model was told that it is the last, and may call no tools in it."""

    scope: Scope
    """Whose budget it is."""
    measure: Measure
    """What it limits."""
    limit: Decimal
    """Its limit."""
    used: Decimal
    """What was used of it."""


@dataclass(kw_only=True)
class BudgetUnknownEvent(CapabilityEvent, namespace='budgets', name='unknown'):
    """A response could not be counted, and a budget that limits it knows less than was used; once for each model."""

    measure: Measure
    """What is not known: `cost` where there is no price, `tokens` where the provider told no usage."""
    model_name: str
    """Whose response it was; empty where that is not known either."""
