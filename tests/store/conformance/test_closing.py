"""The rules about several open stores and closing fail for a store that violates them."""

from __future__ import annotations

import pytest

from pydantic_deep.store import SqlStore, StoreClosedError, VersionFilter
from tests.store.conformance.conftest import RULES, OpenRule, check_open_violation

pytestmark = pytest.mark.anyio

EVERYTHING = VersionFilter()


class Unclosed(SqlStore):
    """Counts no versions after it was closed."""

    async def count(self, filter: VersionFilter = EVERYTHING) -> int:
        try:
            return await super().count(filter)
        except StoreClosedError:
            return 0


async def test_use_after_closing_violates_a_rule() -> None:
    await check_open_violation(Unclosed, RULES.test_closed_store_raises)


@pytest.mark.parametrize(
    'rule', [RULES.test_acknowledged_data_exists_after_closing, RULES.test_concurrent_writers_lose_nothing]
)
async def test_a_database_for_each_store_violates_a_rule(rule: OpenRule) -> None:
    await check_open_violation(SqlStore, rule, is_shared=False)
