"""The rules about rows and keys fail for a repository that violates them."""

from __future__ import annotations

import pytest

from pydantic_deep.repository import RowNotFoundError
from pydantic_deep.repository.conformance import Sample
from tests.repository.conformance.conftest import RULES, Rule, Samples, check_violation

pytestmark = pytest.mark.anyio


class Overwriting(Samples):
    """Creates rows whether they exist or not."""

    async def create(self, item: Sample) -> None:
        await self.upsert(item)


class Merging(Samples):
    """Replaces only the fields that are set."""

    async def upsert(self, item: Sample) -> None:
        try:
            known = await self.get(item.id)
        except RowNotFoundError:
            known = item
        await super().upsert(known.model_copy(update=item.model_dump(exclude_unset=True)))


class Sharing(Samples):
    """Returns the same object each time."""

    def __init__(self) -> None:
        super().__init__()
        self.returned: dict[str, Sample] = {}

    async def get(self, key: str) -> Sample:
        return self.returned.setdefault(key, await super().get(key))


class Forgiving(Samples):
    """Deletes rows that do not exist, and stores rows that cannot be stored by changing them."""

    async def delete(self, key: str) -> bool:
        await super().delete(key)
        return True

    async def upsert(self, item: Sample) -> None:
        await super().upsert(item.model_copy(update={'id': item.id.replace('\0', '') or 'x'}))


@pytest.mark.parametrize(
    ('rows', 'rule', 'is_empty'),
    [
        (Overwriting(), RULES.test_existing_row_is_not_created_again, False),
        (Merging(), RULES.test_upsert_replaces_a_whole_row, False),
        (Sharing(), RULES.test_rows_are_copied_when_stored_and_when_returned, True),
        (Forgiving(), RULES.test_deleted_row_is_not_found, False),
        (Forgiving(), RULES.test_impossible_key_is_not_found, False),
        (Forgiving(), RULES.test_unstorable_row_is_refused, False),
    ],
)
async def test_careless_write_violates_a_rule(rows: Samples, rule: Rule, is_empty: bool) -> None:
    await check_violation(rows, rule, is_empty=is_empty)
