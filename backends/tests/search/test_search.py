"""Search: tables of cases, and the type of searchable backends."""

from __future__ import annotations

from pydantic_deep_backends.protocol import BackendProtocol
from pydantic_deep_backends.search import SearchableFiles
from pydantic_deep_backends.search._cases import GLOB_CASES, GREP_CASES


def test_tables_are_large_enough_and_sorted() -> None:
    assert len(GLOB_CASES) >= 60
    assert len(GREP_CASES) >= 40
    for case in GLOB_CASES:
        assert list(case.expected) == sorted(case.expected)
    for case in GREP_CASES:
        assert list(case.expected) == sorted(case.expected)


def test_every_backend_is_a_searchable_files() -> None:
    def accepts(backend: BackendProtocol) -> SearchableFiles:
        return backend

    assert callable(accepts)
