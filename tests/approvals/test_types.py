"""Rules that are refused where they are written."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from pydantic_deep.approvals import ApprovalRule


@pytest.mark.parametrize(
    'arguments',
    [
        {'decisions': ()},
        {'decisions': ('aprove',)},
        {'decisions': 'approve'},
        {'allow': 'git *'},
        {'deny': 'rm *'},
        {'allow': ('git *', '')},
        {'allow': None},
        {'deny': (3,)},
        {'decisions': None},
        {'decisions': 3},
        {'known_arguments': 'env'},
        {'known_arguments': ('',)},
    ],
)
def test_invalid_rule_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match='ApprovalRule'):
        ApprovalRule(**arguments)


@pytest.mark.parametrize(
    ('arguments', 'said'),
    [
        ({'allow': ('/a[',)}, "ApprovalRule(allow=('/a[',)): '/a[' is not a valid pattern: a `[` is not closed."),
        ({'deny': ('/a[',)}, "ApprovalRule(deny=('/a[',)): '/a[' is not a valid pattern: a `[` is not closed."),
        ({'deny': ('a[/**',)}, "'a[/**' is not a valid pattern"),
        ({'deny': ('/../x',)}, "'/../x' is not a valid pattern: it contains `..`."),
        ({'deny': ('/[.-9]',)}, "'/[.-9]' is not a valid pattern for `deny`"),
    ],
)
def test_invalid_path_pattern_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match='not a valid pattern') as refused:
        ApprovalRule(**arguments)
    assert said in str(refused.value)


def test_predicate_that_is_not_callable_is_refused() -> None:
    rule: dict[str, Any] = {'when': 'always'}
    with pytest.raises(TypeError, match=r"ApprovalRule\(when='always'\): pass a function"):
        ApprovalRule(**rule)


def test_async_predicate_is_refused() -> None:
    async def when(args: object) -> bool:
        return False

    class Asks:
        async def __call__(self, args: object) -> bool:
            return False

    for predicate in (when, partial(when), Asks()):
        rule: dict[str, Any] = {'when': predicate}
        with pytest.raises(TypeError, match='without `async`'):
            ApprovalRule(**rule)
