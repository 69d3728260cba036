"""What a response has cost."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from pydantic_deep._prices import price_of

USED = RequestUsage(input_tokens=1_000_000)


@pytest.mark.parametrize(
    ('response', 'price'),
    [
        (ModelResponse([], usage=USED, model_name='gpt-5', provider_name='openai'), Decimal('1.25')),
        (ModelResponse([], usage=USED, model_name='unheard-of', provider_name='openai'), None),
        (ModelResponse([], usage=USED, model_name='gpt-5'), None),
        (ModelResponse([], usage=USED, provider_name='openai'), None),
        (
            ModelResponse([], usage=RequestUsage(unmeasured_requests=1), model_name='gpt-5', provider_name='openai'),
            None,
        ),
    ],
)
def test_a_price_is_known_or_none(response: ModelResponse, price: Decimal | None) -> None:
    assert price_of(response) == price
