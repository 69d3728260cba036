"""The rules about writing fail for a backend that violates them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from backends.tests.conformance.conftest import FAILURES, RULES
from pydantic_deep_backends import BackendProtocol, StateBackend

pytestmark = pytest.mark.anyio


class Torn(StateBackend):
    """Writes in two steps, and others see the first."""

    async def write_bytes(self, path: str, data: bytes) -> None:
        await super().write_bytes(path, data[: len(data) // 2])
        await anyio.lowlevel.checkpoint()
        await super().write_bytes(path, data)

    async def read_bytes(self, path: str) -> bytes:
        await anyio.lowlevel.checkpoint()
        return await super().read_bytes(path)


class Greedy(StateBackend):
    """Removes every path that begins with the same characters."""

    async def remove(self, path: str) -> None:
        for other in (await self.glob('conformance/**')).paths:
            if other.startswith(path):
                await super().remove(other)


@pytest.mark.parametrize(
    ('backend', 'rule'),
    [
        (Torn(), RULES.test_readers_see_the_old_contents_or_the_new),
        (Torn(), RULES.test_a_write_that_is_cancelled_is_done_or_not),
        (Greedy(), RULES.test_a_directory_is_removed_with_all_in_it_and_no_neighbour),
        (Greedy(), RULES.test_what_is_missing_cannot_be_removed),
        (Greedy(), RULES.test_the_working_directory_and_those_above_stay),
    ],
)
async def test_careless_write_violates_a_rule(
    backend: BackendProtocol, rule: Callable[[BackendProtocol, str], Awaitable[None]]
) -> None:
    with pytest.raises(FAILURES):
        await rule(backend, '/conformance')
