"""Tables in DuckDB: their columns and statements."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pydantic import BaseModel

from pydantic_deep.repository import In
from pydantic_deep.repository.duckdb import DuckdbRepository, _Database  # pyright: ignore[reportPrivateUsage]

pytestmark = pytest.mark.anyio


class Event(BaseModel):
    """A row with one field of each kind that has its own column type."""

    id: str
    at: datetime | None = None
    is_good: bool = True
    score: float = 0.0


FIELDS = ('at', 'is_good', 'score')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / 'rows.duckdb'


async def test_columns_have_the_types_that_other_programs_expect(path: Path) -> None:
    """004-08: a DuckDB file can be analysed without this package."""
    async with await DuckdbRepository.open(path, Event, fields=FIELDS) as events:
        await events.create(
            Event(id='a', at=datetime(2026, 11, 22, 12, tzinfo=timezone(timedelta(hours=2))), score=1.5)
        )
    with duckdb.connect(str(path)) as connection:
        rows = connection.execute('SELECT id, "at", is_good, score, json_extract_string(_row, \'$.id\') FROM Event')
        assert rows.fetchall() == [('a', datetime(2026, 11, 22, 10), True, 1.5, 'a')]


@pytest.mark.parametrize('count', [1, 1000])
async def test_in_condition_is_bound_as_one_parameter(path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    async with await DuckdbRepository.open(path, Event, fields=FIELDS) as repository:
        await repository.upsert(Event(id='a', score=1, at=datetime(2026, 1, 1, tzinfo=UTC)))
        bound: list[int] = []
        execute = _Database._execute  # pyright: ignore[reportPrivateUsage] - the statements that the database receives

        def note(self: _Database, statement: Any) -> Any:
            bound.append(len(statement.parameters))
            return execute(self, statement)

        monkeypatch.setattr(_Database, '_execute', note)
        moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(count)]
        assert await repository.count({'at': In(moments), 'is_good': In([True])}) == 1
        assert max(bound) == 2


async def test_two_tables_of_one_model_are_separate(path: Path) -> None:
    async with (
        await DuckdbRepository.open(path, Event, name='first') as first,
        await DuckdbRepository.open(path, Event, name='second') as second,
    ):
        await first.create(Event(id='a'))
        assert await second.count() == 0


async def test_order_of_fields_does_not_matter(path: Path) -> None:
    async with (
        await DuckdbRepository.open(path, Event, fields=('at', 'score')) as one,
        await DuckdbRepository.open(path, Event, fields=('score', 'at')) as other,
    ):
        await one.create(Event(id='a', score=3.0))
        assert await other.count({'score': 3.0, 'at': None}) == 1
