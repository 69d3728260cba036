"""The rules about compare-and-swap fail for a backend that violates them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from backends.tests.conformance.conftest import FAILURES, RULES
from pydantic_deep_backends import StateBackend

pytestmark = pytest.mark.anyio


class Lossy(StateBackend):
    """Does not compare before it swaps."""

    async def compare_and_swap(self, path: str, data: bytes, *, expected: str | None) -> None:
        await self.write_bytes(path, data)


@pytest.mark.parametrize(
    ('backend', 'rule'),
    [
        (Lossy(), RULES.test_file_is_created_only_if_it_does_not_exist),
        (Lossy(), RULES.test_file_is_replaced_only_if_it_is_unchanged_since_the_read),
        (Lossy(), RULES.test_missing_file_is_not_replaced),
        (Lossy(), RULES.test_concurrent_writers_of_a_file_lose_no_update),
        (Lossy(), RULES.test_one_of_several_concurrent_creators_succeeds),
    ],
)
async def test_lost_update_violates_a_rule(
    backend: StateBackend, rule: Callable[[StateBackend, str], Awaitable[None]]
) -> None:
    with pytest.raises(FAILURES):
        await rule(backend, '/conformance')
