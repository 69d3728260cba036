"""The rules about opening and closing fail for a repository that violates them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from typing import TypeVar

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import MemoryRepository, Repository, RepositoryClosedError, Where, open_repository
from pydantic_deep.repository.conformance import OpenRepository
from pydantic_deep.store import new_id
from tests.repository.conformance.conftest import FAILURES, RULES, Samples, check_violation

T = TypeVar('T', bound=BaseModel)

pytestmark = pytest.mark.anyio


class Unclosed(Samples):
    """Counts its rows after it was closed."""

    async def count(self, where: Where | None = None) -> int:
        try:
            return await super().count(where)
        except RepositoryClosedError:
            return 0


async def test_use_after_closing_violates_a_rule() -> None:
    await check_violation(Unclosed(), RULES.test_closed_repository_raises)


async def open_empty(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
    """Open a new database each time."""
    return MemoryRepository(model, key=key, fields=fields)


@pytest.mark.parametrize(
    'rule',
    [
        RULES.test_acknowledged_data_exists_after_closing,
        RULES.test_repositories_on_one_database_see_the_same_rows,
        RULES.test_field_can_become_queryable_later,
        RULES.test_row_of_an_older_model_gets_defaults,
    ],
)
async def test_forgotten_rows_violate_a_rule(rule: Callable[[OpenRepository], Awaitable[None]]) -> None:
    with pytest.raises(FAILURES):
        await rule(open_empty)


async def test_one_table_for_all_models_violates_a_rule() -> None:
    url = f'memory:{new_id()}'
    async with AsyncExitStack() as stack:

        async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
            rows = open_repository(url, model, key=key, fields=fields, name='all')
            return await stack.enter_async_context(rows)

        with pytest.raises(FAILURES):
            await RULES.test_models_in_one_database_are_separate(open_one)
