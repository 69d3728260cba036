"""`InProcessDispatcher` fulfils the contract of dispatchers."""

from __future__ import annotations

import pytest

from pydantic_deep.dispatch import Dispatcher, InProcessDispatcher
from pydantic_deep.dispatch.conformance import DispatcherSuite, OpenDispatcher


class TestInProcessDispatcher(DispatcherSuite):
    is_durable = False

    @pytest.fixture
    def open_dispatcher(self) -> OpenDispatcher:
        async def open_one() -> Dispatcher:
            return InProcessDispatcher()

        return open_one
