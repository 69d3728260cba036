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
        (Torn(), RULES.test_readers_see_the_old_or_the_new_contents),
        (Torn(), RULES.test_cancelled_write_is_complete_or_has_no_effect),
        (Greedy(), RULES.test_directory_is_removed_with_its_contents_only),
        (Greedy(), RULES.test_missing_file_cannot_be_removed),
        (Greedy(), RULES.test_working_directory_and_its_parents_cannot_be_removed),
    ],
)
async def test_careless_write_violates_a_rule(
    backend: BackendProtocol, rule: Callable[[BackendProtocol, str], Awaitable[None]]
) -> None:
    with pytest.raises(FAILURES):
        await rule(backend, '/conformance')
