"""Types of this capability: budgets and their measures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, Literal, TypeAlias

Measure: TypeAlias = Literal['tokens', 'requests', 'cost', 'seconds']
"""A measure: input and output tokens, requests to models, cost in US dollars, or seconds."""

Scope: TypeAlias = Literal['run', 'conversation']
"""The scope of a budget: one run, or all runs of a conversation."""

Amounts: TypeAlias = Mapping[Measure, Decimal]
"""An amount for each measure; a missing one is 0."""

ZERO: Final = Decimal(0)


@dataclass(frozen=True, kw_only=True, init=False)
class Budget:
    """Limits, at least one of which is set: `Budget(tokens=200_000, cost='0.50')`.

    Raises:
        ValueError: No limit is set, or a limit is not a number above 0.
    """

    tokens: int | None
    """Maximum tokens of all requests and responses, including cached tokens."""
    requests: int | None
    """Maximum number of requests to models. A request counts when it starts."""
    cost: Decimal | None
    """Maximum cost in US dollars, by the prices of genai-prices or as reported by the provider."""
    seconds: float | None
    """Maximum time since the start of a run in seconds, including the time of models, tools and subagents."""

    def __init__(
        self,
        *,
        tokens: int | None = None,
        requests: int | None = None,
        cost: Decimal | float | str | None = None,
        seconds: float | None = None,
    ) -> None:
        """Set the limits; `None` means unlimited. `cost` may be a number or a decimal string."""
        object.__setattr__(self, 'tokens', _checked_count('tokens', tokens))
        object.__setattr__(self, 'requests', _checked_count('requests', requests))
        object.__setattr__(self, 'cost', _checked_cost(cost))
        object.__setattr__(self, 'seconds', _checked_seconds(seconds))
        if not self.limits:
            raise ValueError('`Budget()` has no limits. Set `tokens`, `requests`, `cost` or `seconds`.')

    def __repr__(self) -> str:
        return f'Budget({", ".join(f"{measure}={getattr(self, measure)!s}" for measure in self.limits)})'

    @property
    def limits(self) -> Amounts:
        """The limits that are set, keyed by measure."""
        values = {'tokens': self.tokens, 'requests': self.requests, 'cost': self.cost, 'seconds': self.seconds}
        limits: dict[Measure, Decimal] = {}
        for measure in MEASURES:
            if (limit := values[measure]) is not None:
                limits[measure] = Decimal(limit)
        return limits


MEASURES: Final[tuple[Measure, ...]] = ('tokens', 'requests', 'cost', 'seconds')


def render_amount(measure: Measure, amount: Decimal) -> str:
    """Return an amount with its unit, for people and models."""
    number = _number(measure, amount)
    return number if measure == 'cost' else f'{number} {measure}'


def render_use(measure: Measure, used: Decimal, limit: Decimal) -> str:
    """Return the used part of a limit as text."""
    return f'{_number(measure, used)} of {render_amount(measure, limit)}'


def exact_seconds(seconds: float) -> Decimal:
    """Return a time rounded to microseconds: further digits are noise, and are stored with each response."""
    return Decimal(round(seconds * 1_000_000)).scaleb(-6)


def _number(measure: Measure, amount: Decimal) -> str:
    match measure:
        case 'cost':
            # Four digits, as a request to a cheap model costs less than a cent.
            return f'${amount:,.4f}'.removesuffix('00')
        case 'seconds':
            return f'{amount:,.1f}'
        case _:
            return f'{amount:,}'


def _checked_count(measure: Measure, count: object) -> int | None:
    if count is None or (isinstance(count, int) and not isinstance(count, bool) and count > 0):
        return count
    raise ValueError(f'`{measure}` of a budget is {count!r}. Use a whole number above 0, or leave it out.')


def _checked_cost(cost: object) -> Decimal | None:
    if cost is None:
        return None
    problem = f'`cost` of a budget is {cost!r}. Use US dollars above 0, such as 0.5, or leave it out.'
    if isinstance(cost, bool) or not isinstance(cost, (Decimal, int, float, str)):
        raise ValueError(problem)
    try:
        dollars = Decimal(str(cost))
    except InvalidOperation as error:
        raise ValueError(problem) from error
    if not dollars.is_finite() or dollars <= 0:
        raise ValueError(problem)
    return dollars


def _checked_seconds(seconds: object) -> float | None:
    if seconds is None or (
        isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and math.isfinite(seconds) and seconds > 0
    ):
        return seconds
    raise ValueError(f'`seconds` of a budget is {seconds!r}. Use a number above 0, or leave it out.')
