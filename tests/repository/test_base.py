"""Blocking calls of repositories run one at a time, and complete even if their task is cancelled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel

from pydantic_deep.repository.duckdb import DuckdbRepository

pytestmark = pytest.mark.anyio


class Event(BaseModel):
    id: str


async def test_cancelled_write_is_completed_or_not_started(tmp_path: Path) -> None:
    async with await DuckdbRepository.open(tmp_path / 'rows.duckdb', Event) as events:
        tasks = [asyncio.create_task(events.create(Event(id=str(number)))) for number in range(5)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        assert await events.count() <= 1
        await events.create(Event(id='5'))
