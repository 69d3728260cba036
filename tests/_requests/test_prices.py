"""Prices and context windows of responses."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from pydantic_deep._requests.prices import price_of, window_of

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
def test_price_is_known_or_none(response: ModelResponse, price: Decimal | None) -> None:
    assert price_of(response) == price


def test_context_window_is_known_or_none() -> None:
    response = ModelResponse([], usage=USED, model_name='claude-opus-4-1', provider_name='anthropic')

    assert window_of(response) == 200_000
    assert window_of(replace(response, model_name='unheard-of')) is None
