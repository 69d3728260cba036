"""The tables of search cases."""

from __future__ import annotations

from pydantic_deep_backends.search._cases import GLOB_CASES, GREP_CASES


def test_tables_are_large_enough_and_sorted() -> None:
    assert len(GLOB_CASES) >= 60
    assert len(GREP_CASES) >= 40
    for case in GLOB_CASES:
        assert list(case.expected) == sorted(case.expected)
    for case in GREP_CASES:
        assert list(case.expected) == sorted(case.expected)
