"""Validation and rendering of `Budget`, and the arguments of `Budgets`."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import UserError

from pydantic_deep.budgets import Budget, Budgets
from pydantic_deep.budgets._types import render_use


@pytest.mark.parametrize('cost', [Decimal('0.5'), 0.5, '0.5'])
def test_cost_is_exact_for_every_input_type(cost: Any) -> None:
    assert Budget(cost=cost).cost == Decimal('0.5')


def test_float_cost_is_converted_by_its_decimal_repr() -> None:
    assert Budget(cost=0.1).cost == Decimal('0.1')
    assert Budget(cost=2).cost == 2


@pytest.mark.parametrize(
    'limits',
    [
        {'tokens': 0},
        {'tokens': -1},
        {'tokens': 1.5},
        {'tokens': True},
        {'tokens': '100'},
        {'requests': 0},
        {'requests': False},
        {'cost': 0},
        {'cost': -1},
        {'cost': 'much'},
        {'cost': True},
        {'cost': []},
        {'cost': float('nan')},
        {'cost': 'Infinity'},
        {'seconds': 0},
        {'seconds': -0.1},
        {'seconds': True},
        {'seconds': '10'},
        {'seconds': float('inf')},
    ],
)
def test_invalid_limit_is_refused_and_its_value_shown(limits: dict[str, Any]) -> None:
    [(measure, value)] = limits.items()
    with pytest.raises(ValueError, match=f'`{measure}` of a budget is') as raised:
        Budget(**limits)
    assert repr(value) in str(raised.value)


def test_budget_without_limits_is_refused() -> None:
    with pytest.raises(ValueError, match='has no limits'):
        Budget()


def test_budget_is_a_value_object() -> None:
    budget = Budget(tokens=1_000, cost='0.50')
    assert repr(budget) == 'Budget(tokens=1000, cost=0.50)'
    assert dataclasses.replace(budget, tokens=2_000) == Budget(tokens=2_000, cost='0.5')
    assert hash(budget) == hash(Budget(tokens=1_000, cost='0.5'))


@pytest.mark.parametrize(
    ('arguments', 'problem'),
    [
        ({}, 'has no limits'),
        ({'run': 5}, '`run` is 5'),
        ({'conversation': {'tokens': 5}}, '`conversation` is'),
        ({'run': Budget(tokens=1), 'warn_at': 0}, '`warn_at` is 0'),
        ({'run': Budget(tokens=1), 'warn_at': '0.8'}, "`warn_at` is '0.8'"),
        ({'run': Budget(tokens=1), 'warn_at': None}, '`warn_at` is None'),
        ({'run': Budget(tokens=1), 'warn_at': 1.1}, '`warn_at` is 1.1'),
    ],
)
def test_invalid_budgets_arguments_are_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Budgets(**arguments)


def test_budgets_cannot_be_deferred() -> None:
    with pytest.raises(UserError, match='defer_loading'):
        Budgets(run=Budget(tokens=1), defer_loading=True, description='Budgets')


def test_limits_are_rendered_with_their_units() -> None:
    assert render_use('tokens', Decimal(1_234), Decimal(10_000)) == '1,234 of 10,000 tokens'
    assert render_use('requests', Decimal(4), Decimal(5)) == '4 of 5 requests'
    assert render_use('cost', Decimal('0.08125'), Decimal('0.50')) == '$0.0812 of $0.50'
    assert render_use('cost', Decimal(0), Decimal(1_000)) == '$0.00 of $1,000.00'
    assert render_use('seconds', Decimal('61.25'), Decimal(3_600)) == '61.2 of 3,600.0 seconds'
