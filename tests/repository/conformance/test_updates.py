"""The rules about updates fail for a repository that violates them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar, cast

import anyio.lowlevel
import pytest
from pydantic import BaseModel

from pydantic_deep.repository import MemoryRepository, Repository, RowNotFoundError
from pydantic_deep.repository.conformance import Sample
from tests.repository.conformance.conftest import FAILURES, RULES, Rule, Samples, check_violation

T = TypeVar('T', bound=BaseModel)

pytestmark = pytest.mark.anyio


class Racing(Samples):
    """Reads a row, and replaces it later."""

    async def update(self, key: str, change: Callable[[Sample | None], Sample | None]) -> Sample | None:
        try:
            changed = change(await self.get(key))
        except RowNotFoundError:
            changed = change(None)
        await anyio.lowlevel.checkpoint()
        if changed is not None:
            await self.upsert(changed)
        return changed


class Swallowing(Samples):
    """Keeps what the change made of the row before it failed."""

    async def update(self, key: str, change: Callable[[Sample | None], Sample | None]) -> Sample | None:
        row = await self.get(key)
        try:
            return await super().update(key, change)
        except Exception:
            await self.upsert(row.model_copy(update={'name': 'lost'}))
            raise


class Comparing(Samples):
    """Writes nothing if the change returns its argument."""

    async def update(self, key: str, change: Callable[[Sample | None], Sample | None]) -> Sample | None:
        row = await self.get(key)
        changed = change(row)
        return changed if changed is row else await super().update(key, lambda _: changed)


@pytest.mark.parametrize(
    ('rows', 'rule'),
    [
        (Racing(), RULES.test_update_does_not_restore_a_row_that_is_deleted_meanwhile),
        (Racing(), RULES.test_update_to_none_removes_a_row),
        (Swallowing(), RULES.test_failed_update_changes_nothing),
        (Comparing(), RULES.test_row_may_be_changed_in_place),
    ],
)
async def test_wrong_update_violates_a_rule(rows: Samples, rule: Rule) -> None:
    await check_violation(rows, rule)


async def test_lost_update_violates_a_rule() -> None:
    rows = Racing()

    async def open_again(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
        return cast('Repository[T]', rows)

    with pytest.raises(FAILURES):
        await RULES.test_concurrent_updates_of_one_row_are_all_applied(open_again, rows)


async def test_rules_are_skipped_for_a_repository_without_updates() -> None:
    """The protocol `Repository` does not require them."""

    class Plain:
        def __init__(self, rows: MemoryRepository[Sample]) -> None:
            self.list = rows.list

    with pytest.raises(pytest.skip.Exception):
        await RULES.test_unchanged_row_remains(cast('Repository[Sample]', Plain(Samples())))
