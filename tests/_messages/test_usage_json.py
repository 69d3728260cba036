"""Usage as JSON."""

from __future__ import annotations

import json
from decimal import Decimal

from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.usage_json import dump_usage, load_usage


def test_usage_round_trips_without_its_zeros() -> None:
    usage = RunUsage(requests=2, input_tokens=7, cost=Decimal('0.12500'), details={'reasoning_tokens': 3})
    dumped = dump_usage(usage)
    assert json.loads(dumped) == {
        'requests': 2,
        'input_tokens': 7,
        'cost': '0.12500',
        'details': {'reasoning_tokens': 3},
    }
    assert load_usage(dumped) == usage


def test_unused_usage_is_an_empty_object() -> None:
    assert dump_usage(RunUsage()) == '{}'
    assert load_usage('{}') == RunUsage()
