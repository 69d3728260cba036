"""The cost of a response, and the context window of its model, if known."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic_ai.messages import ModelResponse

if TYPE_CHECKING:  # a dependency of pydantic-ai, not of ours
    from genai_prices.types import PriceCalculation


def price_of(response: ModelResponse) -> Decimal | None:
    """Return the cost of a response in US dollars; `None` if no price is known."""
    calculation = _look_up(response)
    return None if calculation is None else calculation.total_price


def window_of(response: ModelResponse) -> int | None:
    """Return the context window of a response's model, in tokens; `None` if unknown."""
    calculation = _look_up(response)
    return None if calculation is None else calculation.model.context_window


def _look_up(response: ModelResponse) -> PriceCalculation | None:
    if not response.model_name or not response.provider_name:
        return None
    try:
        return response.cost()
    except (LookupError, ValueError):  # the model has no price, or the provider reported no usage
        return None
