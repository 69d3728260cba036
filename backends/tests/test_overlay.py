"""`OverlayBackend`: the rules of all backends, what is seen, what is merged, and what goes to another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep_backends import LocalBackend, OverlayBackend, StateBackend
from pydantic_deep_backends.conformance import BackendSuite

pytestmark = pytest.mark.anyio


class TestOverlayOfState(BackendSuite):
    @pytest.fixture
    def backend(self) -> OverlayBackend:
        return OverlayBackend(StateBackend())


class TestOverlayOfLocal(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> OverlayBackend:
        return OverlayBackend(LocalBackend(tmp_path))
