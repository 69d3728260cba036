"""What a response has cost, where a price is known."""

from __future__ import annotations

from decimal import Decimal

from pydantic_ai.messages import ModelResponse


def price_of(response: ModelResponse) -> Decimal | None:
    """Return what a response cost in US dollars; `None` where no price is known."""
    if not response.model_name or not response.provider_name:
        return None
    try:
        return response.cost().total_price
    except (LookupError, ValueError):  # the model has no price, or the provider told no usage
        return None
