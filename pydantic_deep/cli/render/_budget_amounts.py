"""Amounts of a budget, as values and as text. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias

from pydantic_deep.budgets import Measure

BudgetMeasure: TypeAlias = Literal['tokens', 'cost']
"""The limited quantity of a budget: tokens, input and output together, or US dollars."""


@dataclass(frozen=True, kw_only=True)
class BudgetUsage:
    """The usage of one limit."""

    measure: BudgetMeasure
    """The quantity that is limited."""
    limit: Decimal
    """The limit, in tokens or US dollars."""
    used: Decimal
    """The amount used so far."""


def render_amount(measure: Measure, amount: float | Decimal) -> str:
    """Return an amount as text. A cost has four decimal places, because an answer may cost less than a cent."""
    return f'${amount:,.4f}'.removesuffix('00') if measure == 'cost' else f'{amount:,.0f} {measure}'
