"""What a response has cost, and how much its model takes, where that is known."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic_ai.messages import ModelResponse

if TYPE_CHECKING:  # a package of pydantic-ai's, not of ours
    from genai_prices.types import PriceCalculation


def price_of(response: ModelResponse) -> Decimal | None:
    """Return what a response cost in US dollars; `None` where no price is known."""
    found = _look_up(response)
    return None if found is None else found.total_price


def window_of(response: ModelResponse) -> int | None:
    """Return how many tokens the model of a response takes; `None` where it is not known."""
    found = _look_up(response)
    return None if found is None else found.model.context_window


def _look_up(response: ModelResponse) -> PriceCalculation | None:
    if not response.model_name or not response.provider_name:
        return None
    try:
        return response.cost()
    except (LookupError, ValueError):  # the model has no price, or the provider told no usage
        return None
