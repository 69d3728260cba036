"""The nouns of the room: what a budget limits, and of what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, Literal, TypeAlias

Measure: TypeAlias = Literal['tokens', 'requests', 'cost', 'seconds']
"""What is limited: tokens in and out, requests to models, US dollars, or seconds."""

Scope: TypeAlias = Literal['run', 'conversation']
"""Of what a budget is: one run, or all runs of a conversation."""

Amounts: TypeAlias = Mapping[Measure, Decimal]
"""Something of each measure; what is not there is 0."""

ZERO: Final = Decimal(0)


@dataclass(frozen=True, kw_only=True, init=False)
class Budget:
    """Limits, of which one at least is set: `Budget(tokens=200_000, cost='0.50')`.

    Raises:
        ValueError: No limit is set, or one is not a number above 0.
    """

    tokens: int | None
    """Tokens of all requests and responses, those read from a cache included."""
    requests: int | None
    """Requests to models, each counted when it is begun."""
    cost: Decimal | None
    """US dollars, by the prices of genai-prices or what the provider told."""
    seconds: float | None
    """Time from the beginning of a run, whatever it waited for: its model, its tools, its subagents."""

    def __init__(
        self,
        *,
        tokens: int | None = None,
        requests: int | None = None,
        cost: Decimal | float | str | None = None,
        seconds: float | None = None,
    ) -> None:
        """Set limits; `None` for none. A cost may be a number or its text."""
        object.__setattr__(self, 'tokens', _checked_count('tokens', tokens))
        object.__setattr__(self, 'requests', _checked_count('requests', requests))
        object.__setattr__(self, 'cost', _checked_cost(cost))
        object.__setattr__(self, 'seconds', _checked_seconds(seconds))
        if not self.limits:
            raise ValueError('`Budget()` limits nothing. Set `tokens`, `requests`, `cost` or `seconds`.')

    def __repr__(self) -> str:
        return f'Budget({", ".join(f"{measure}={getattr(self, measure)!s}" for measure in self.limits)})'

    @property
    def limits(self) -> Amounts:
        """The limits that are set, by measure."""
        given = {'tokens': self.tokens, 'requests': self.requests, 'cost': self.cost, 'seconds': self.seconds}
        limits: dict[Measure, Decimal] = {}
        for measure in MEASURES:
            if (limit := given[measure]) is not None:
                limits[measure] = Decimal(limit)
        return limits


MEASURES: Final[tuple[Measure, ...]] = ('tokens', 'requests', 'cost', 'seconds')


def render_amount(measure: Measure, amount: Decimal) -> str:
    """Return an amount with its unit, as people and models read it."""
    number = _number(measure, amount)
    return number if measure == 'cost' else f'{number} {measure}'


def render_use(measure: Measure, used: Decimal, limit: Decimal) -> str:
    """Return what is used of a limit."""
    return f'{_number(measure, used)} of {render_amount(measure, limit)}'


def exact_seconds(seconds: float) -> Decimal:
    """Return a time in whole microseconds: what a clock tells beyond is noise, and is written down for each response."""
    return Decimal(round(seconds * 1_000_000)).scaleb(-6)


def _number(measure: Measure, amount: Decimal) -> str:
    match measure:
        case 'cost':
            # Four digits: a request of a cheap model costs less than a cent.
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
