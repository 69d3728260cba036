"""The rules about transactions fail for a repository that violates them."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.lowlevel
import pytest

from pydantic_deep.repository import Change, Delete, RowExistsError, RowNotFoundError
from pydantic_deep.repository.conformance import Sample
from tests.repository.conformance.conftest import RULES, Rule, Samples, check_violation

pytestmark = pytest.mark.anyio


class OneByOne(Samples):
    """Applies changes one by one, so that an error leaves the changes before it."""

    async def apply(self, changes: Sequence[Change[Sample]]) -> None:
        for change in changes:
            await super().apply([change])


class Unordered(Samples):
    """Deletes rows before it applies other changes."""

    async def apply(self, changes: Sequence[Change[Sample]]) -> None:
        await super().apply(sorted(changes, key=lambda change: not isinstance(change, Delete)))


class Racing(Samples):
    """Checks whether a row exists, and creates it later."""

    async def create(self, item: Sample) -> None:
        try:
            await self.get(item.id)
        except RowNotFoundError:
            await anyio.lowlevel.checkpoint()
            await self.upsert(item)
        else:
            raise RowExistsError('Sample', item.id)


@pytest.mark.parametrize(
    ('rows', 'rule', 'is_empty'),
    [
        (OneByOne(), RULES.test_failed_change_discards_all_changes, False),
        (OneByOne(), RULES.test_unstorable_row_discards_all_changes, False),
        (Unordered(), RULES.test_changes_are_applied_in_order, False),
        (Racing(), RULES.test_one_of_several_concurrent_tasks_creates_a_row, True),
    ],
)
async def test_partial_or_racing_change_violates_a_rule(rows: Samples, rule: Rule, is_empty: bool) -> None:
    await check_violation(rows, rule, is_empty=is_empty)
