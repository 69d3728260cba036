"""Fixtures of the whole suite. Requests to real models are switched off."""

from __future__ import annotations

import pytest
from pydantic_ai import models

models.ALLOW_MODEL_REQUESTS = False


@pytest.fixture
def anyio_backend() -> str:
    return 'asyncio'
