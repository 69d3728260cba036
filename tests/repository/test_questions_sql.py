"""Queries in SQL use the indexes of their fields."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import Create, SqlRepository
from pydantic_deep.store.engine import Operation
from pydantic_deep.store.sqlite import SqliteEngine

pytestmark = pytest.mark.anyio

R = TypeVar('R')


class Event(BaseModel):
    id: str
    at: datetime | None


class Explaining(SqliteEngine):
    """Records SQLite's query plan of every read."""

    steps: list[str]

    async def read(self, operation: Callable[[], Operation[R]]) -> R:
        def explained() -> Operation[R]:
            running = operation()
            try:
                statement = next(running)
                while True:
                    plan = yield statement._replace(sql=f'EXPLAIN QUERY PLAN {statement.sql}')
                    self.steps += [str(row[3]) for row in plan]
                    statement = running.send((yield statement))
            except StopIteration as stop:
                return stop.value

        return await super().read(explained)


@pytest.mark.parametrize('order', ['at', '-at', 'id', '-id'])
async def test_page_is_read_from_an_index(path: Path, order: str) -> None:
    """A page costs as much as its rows: no statement scans or sorts all rows, except ties in descending order."""
    engine = await Explaining.open(path)
    engine.steps = []
    events = await SqlRepository.open(engine, Event, fields=('at',))
    engine.steps.clear()  # the steps that looked up the table
    ties = {f'USE TEMP B-TREE FOR {part} OF ORDER BY' for part in ('RIGHT PART', 'LAST TERM')}  # SQLite 3.45, 3.53
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    await events.apply([Create(Event(id=f'{at:03}', at=moment if at % 9 else None)) for at in range(200)])
    for limit in (5, 190):
        page = await events.list(order_by=order, limit=limit)
        assert len((await events.list(order_by=order, limit=5, cursor=page.cursor)).items) == 5
    await engine.aclose()
    assert len(engine.steps) >= 4
    assert {step for step in engine.steps if ' USING ' not in step} <= (ties if order == '-at' else set[str]())
