"""Conditions as expressions of Iceberg."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import Create, In
from pydantic_deep.repository.iceberg import IcebergRepository

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Event(BaseModel):
    """A row with one field of each kind that has its own column type."""

    id: str
    at: datetime | None = None
    is_good: bool = True
    score: float = 0.0
    count: int | None = None


FIELDS = ('at', 'is_good', 'score', 'count')


async def test_negative_zero_equals_zero(tmp_path: Path) -> None:
    """Arrow distinguishes them when it looks up one of several values."""
    async with await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as events:
        await events.apply([Create(Event(id='a', score=-0.0)), Create(Event(id='b', score=0.0))])
        for where in ({'score': In([0.0, 3.0])}, {'score': In([-0.0, 3.0])}, {'score': -0.0}):
            assert await events.count(where) == 2
        assert str((await events.get('a')).score) == '-0.0'
