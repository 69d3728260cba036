"""Fixtures of the suite of the backends."""

from __future__ import annotations

import pytest
from hypothesis import settings

# A busy machine is slow, not wrong; and the same examples every time, so that a failure is found where it was made.
settings.register_profile('suite', deadline=None, derandomize=True, database=None)
settings.load_profile('suite')


@pytest.fixture
def anyio_backend() -> str:
    return 'asyncio'
