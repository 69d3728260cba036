"""The rules about paths fail for a backend that violates them."""

from __future__ import annotations

import pytest

from backends.tests.conformance.conftest import FAILURES, RULES
from pydantic_deep_backends import StateBackend

pytestmark = pytest.mark.anyio


class Trusting(StateBackend):
    """Accepts every path."""

    async def realpath(self, path: str) -> str:
        return path


async def test_unchecked_path_violates_a_rule() -> None:
    with pytest.raises(FAILURES):
        await RULES.test_every_operation_refuses_malformed_paths(Trusting(), '/../a')
