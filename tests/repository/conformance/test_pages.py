"""The rules about order and pages fail for a repository that violates them."""

from __future__ import annotations

from functools import partial

import pytest

from pydantic_deep.repository import Page, Where
from pydantic_deep.repository.conformance import Sample
from tests.repository.conformance.conftest import RULES, Rule, Samples, check_violation

pytestmark = pytest.mark.anyio


class ByOffset(Samples):
    """Has offsets as cursors."""

    async def list(
        self, where: Where | None = None, *, order_by: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[Sample]:
        rows = (await super().list(where, order_by=order_by, limit=1000)).items
        start = int(cursor) if cursor and cursor.isdigit() else 0
        end = start + limit
        return Page(items=rows[start:end], cursor=str(end) if end < len(rows) else None)


class IgnoringCase(Samples):
    """Orders text without regard to case."""

    async def list(
        self, where: Where | None = None, *, order_by: str | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[Sample]:
        page = await super().list(where, order_by=order_by, limit=limit, cursor=cursor)
        return Page(items=sorted(page.items, key=lambda row: (row.name or '').casefold()), cursor=page.cursor)


@pytest.mark.parametrize(
    ('rows', 'rule', 'is_empty'),
    [
        (ByOffset(), partial(RULES.test_concurrent_changes_neither_shift_nor_repeat_rows, order='id'), True),
        (ByOffset(), RULES.test_cursor_is_valid_for_its_query_only, False),
        (ByOffset(), RULES.test_invalid_cursor_is_refused, False),
        (IgnoringCase(), RULES.test_rows_are_ordered, False),
        (IgnoringCase(), RULES.test_text_is_ordered_by_code_points, True),
    ],
)
async def test_wrong_page_violates_a_rule(rows: Samples, rule: Rule, is_empty: bool) -> None:
    await check_violation(rows, rule, is_empty=is_empty)
