"""The error of an exceeded budget."""

from __future__ import annotations

from decimal import Decimal

from pydantic_ai.exceptions import UsageLimitExceeded

from pydantic_deep.budgets import BudgetExceededError
from pydantic_deep.errors import DeepAgentError


def test_error_has_attributes_and_suggests_a_remedy() -> None:
    error = BudgetExceededError(scope='run', measure='tokens', limit=Decimal(500), used=Decimal(550))
    assert isinstance(error, DeepAgentError)
    assert isinstance(error, UsageLimitExceeded)
    assert (error.scope, error.measure, error.limit, error.used) == ('run', 'tokens', 500, 550)
    assert error.message.startswith(
        'The budget of 500 tokens for this run is used up: 550 tokens used. '
        'Raise it in `Budgets(run=Budget(tokens=…))` and run again with the messages so far.'
    )


def test_error_in_a_subagent_mentions_the_reserve() -> None:
    error = BudgetExceededError(
        scope='conversation', measure='requests', limit=Decimal(5), used=Decimal(4), is_inherited=True
    )
    assert 'for the parent conversation is used up: 4 requests used, and the rest is reserved' in error.message
