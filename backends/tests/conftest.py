"""Fixtures of the suite of the backends."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return 'asyncio'
