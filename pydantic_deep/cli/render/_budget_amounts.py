"""Amounts of a budget, as values and as text. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias

from pydantic_deep.budgets import Measure

BudgetMeasure: TypeAlias = Literal['tokens', 'cost']
"""The limits of a turn: tokens, sent and written together, or US dollars."""


@dataclass(frozen=True, kw_only=True)
class BudgetUsage:
    """How much of a limit is used."""

    measure: BudgetMeasure
    """What is limited."""
    limit: Decimal
    """The limit."""
    used: Decimal
    """What is used of it."""


def render_amount(measure: Measure, amount: float | Decimal) -> str:
    """Return an amount as a person reads it: of a cost four digits, because an answer may take less than a cent."""
    return f'${amount:,.4f}'.removesuffix('00') if measure == 'cost' else f'{amount:,.0f} {measure}'
