"""Iterators become lists, at any depth, and other results stay the same objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic_ai import ToolReturn

from pydantic_deep._messages.iterators import drained


def numbers() -> Iterator[int]:
    yield from (1, 2)


@pytest.mark.parametrize(
    ('result', 'expected'),
    [
        (numbers(), [1, 2]),
        (map(str, [1]), ['1']),
        (iter([numbers()]), [[1, 2]]),
        ({'a': numbers(), 'b': 3}, {'a': [1, 2], 'b': 3}),
        ([0, (numbers(),)], [0, [[1, 2]]]),
    ],
)
def test_iterators_become_lists(result: object, expected: object) -> None:
    assert drained(result) == expected


def test_the_value_of_a_tool_return_is_drained() -> None:
    assert drained(ToolReturn(numbers(), metadata=1)) == ToolReturn([1, 2], metadata=1)


@pytest.mark.parametrize('result', [None, 'text', b'x', {'a': [1, ('b',)]}, ToolReturn([1]), range(3)])
def test_results_without_iterators_are_the_same_objects(result: object) -> None:
    assert drained(result) is result


def test_a_circular_result_is_left_to_its_serialization() -> None:
    circular: list[object] = []
    circular.append(circular)
    assert drained(circular) is circular
