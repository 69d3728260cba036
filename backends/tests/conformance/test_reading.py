"""The rules about reading fail for a backend that violates them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from backends.tests.conformance.conftest import FAILURES, RULES, PlainBackend
from pydantic_deep_backends import FileEntry, StateBackend

pytestmark = pytest.mark.anyio


class Unsorted(StateBackend):
    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        return list(reversed(await super().list_dir(path)))


class Silent(PlainBackend):
    """Returns no bytes for unreadable files."""

    async def read_bytes(self, path: str) -> bytes:
        return b'' if path in self.unreadable else await super().read_bytes(path)


async def test_unsorted_listing_violates_a_rule() -> None:
    backend = Unsorted()
    with pytest.raises(FAILURES):
        await RULES.test_listing_is_sorted_by_name_and_not_recursive(backend, backend.write_bytes, '/conformance')


async def test_empty_result_for_an_unreadable_file_violates_a_rule() -> None:
    backend = Silent()

    async def make_unreadable(path: str) -> None:
        backend.unreadable.add(path)

    with pytest.raises(FAILURES):
        await RULES.test_unreadable_file_is_an_error_and_hides_no_other_file(
            backend, backend.write_bytes, '/conformance', make_unreadable
        )
