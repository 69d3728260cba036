"""The rules about fields and conditions fail for a repository that violates them."""

from __future__ import annotations

import re
from functools import partial

import pytest

from pydantic_deep.repository import InvalidQuestionError, Page, Prefix, UnknownFieldError, Where
from pydantic_deep.repository.conformance import Sample
from tests.repository.conformance.conftest import RULES, Rule, Samples, check_violation

pytestmark = pytest.mark.anyio


class Lenient(Samples):
    """Counts no rows if a query is invalid, and adapts limits."""

    async def count(self, where: Where | None = None) -> int:
        try:
            return await super().count(where)
        except (InvalidQuestionError, UnknownFieldError):
            return 0

    async def list(
        self, where: Where | None = None, *, order_by: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[Sample]:
        return await super().list(where, order_by=order_by, limit=max(limit, 1), cursor=cursor)


class Matching(Samples):
    """Takes a prefix for a pattern, like a careless `LIKE`."""

    async def list(
        self, where: Where | None = None, *, order_by: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[Sample]:
        match (where or {}).get('name'):
            case Prefix(text):
                pattern = re.escape(text).replace('%', '.*').replace('_', '.') + '.*'
                rows = (await super().list()).items
                return Page(items=[row for row in rows if re.fullmatch(pattern, row.name or '')], cursor=None)
            case _:
                return await super().list(where, order_by=order_by, limit=limit, cursor=cursor)


class Uncounted(Samples):
    """Counts all rows for every condition."""

    async def count(self, where: Where | None = None) -> int:
        return await super().count()


@pytest.mark.parametrize(
    ('rows', 'rule'),
    [
        (Lenient(), RULES.test_unknown_fields_are_refused_in_queries),
        (Lenient(), RULES.test_mismatched_condition_is_refused_with_its_field),
        (Lenient(), partial(RULES.test_limit_is_bounded, limit=0)),
        (Matching(), RULES.test_text_is_compared_as_a_value_and_not_as_a_pattern),
        (Uncounted(), RULES.test_queries_return_matching_rows),
    ],
)
async def test_wrong_answer_violates_a_rule(rows: Samples, rule: Rule) -> None:
    await check_violation(rows, rule)
