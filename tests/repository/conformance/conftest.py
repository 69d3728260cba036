"""Helpers of the tests in this folder: each rule must fail for a repository that violates it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pydantic_deep.repository import MemoryRepository, Repository
from pydantic_deep.repository.conformance import FIELDS, SAMPLES, RepositorySuite, Sample

RULES = RepositorySuite()

FAILURES = (AssertionError, pytest.fail.Exception)

Rule = Callable[[Repository[Sample]], Awaitable[None]]


class Samples(MemoryRepository[Sample]):
    """The base class of repositories that violate rules."""

    def __init__(self) -> None:
        super().__init__(Sample, fields=FIELDS)


async def check_violation(rows: Samples, rule: Rule, *, is_empty: bool = False) -> None:
    """Check that a rule fails for a repository, empty or with the samples of the suite."""
    for row in () if is_empty else SAMPLES:
        await rows.upsert(row)
    with pytest.raises(FAILURES):
        await rule(rows)
