"""Rows as Arrow tables in Iceberg: their columns and types."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import pytest
from pydantic import BaseModel, create_model
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from pydantic_deep.repository import RepositoryFormatError
from pydantic_deep.repository._iceberg_rows import open_table
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


def catalog_of(warehouse: Path) -> SqlCatalog:
    return SqlCatalog('default', uri=f'sqlite:///{warehouse}/catalog.db', warehouse=str(warehouse))


async def test_columns_have_the_types_that_other_programs_expect(tmp_path: Path) -> None:
    """004-08: an Iceberg table can be read by other Iceberg clients."""
    async with await IcebergRepository.open(tmp_path, Event, fields=FIELDS) as events:
        at = datetime(2026, 11, 22, 12, tzinfo=timezone(timedelta(hours=2)))
        await events.create(Event(id='a', at=at, score=1.5, count=2))
    with closing(catalog_of(tmp_path)) as catalog:
        (path,) = (tmp_path / 'repository' / 'event' / 'data').iterdir()
        schema = catalog.load_table('repository.event').schema()
    assert {field.name: str(field.field_type) for field in schema.fields} == {
        'id': 'string', '_row': 'string', 'at': 'timestamptz', 'is_good': 'boolean', 'score': 'double', 'count': 'long',
    }  # fmt: skip
    with duckdb.connect() as connection:
        rows = connection.execute('SELECT id, epoch("at"), is_good, score, count FROM read_parquet(?)', [str(path)])
        assert rows.fetchall() == [('a', at.timestamp(), True, 1.5, 2)]


async def test_foreign_table_is_not_touched(tmp_path: Path) -> None:
    with closing(catalog_of(tmp_path)) as catalog:
        open_table(catalog, ('repository', 'event'), Schema(NestedField(1, 'id', StringType(), required=True)))
        before = catalog.load_table('repository.event').metadata
        with pytest.raises(RepositoryFormatError, match='another `name`'):
            await IcebergRepository.open(tmp_path, Event)
        assert catalog.load_table('repository.event').metadata == before


async def test_empty_table_gets_the_new_columns(tmp_path: Path) -> None:
    async with await IcebergRepository.open(tmp_path, Event, fields=('score', 'at')):
        pass
    async with await IcebergRepository.open(tmp_path, Event, fields=('score', 'count')) as events:
        await events.create(Event(id='a', count=1))
        assert await events.count({'count': 1}) == 1


async def test_changed_field_type_gets_another_column(tmp_path: Path) -> None:
    first, second = create_model('Event', id=str, size=int), create_model('Event', id=str, size=float)
    async with await IcebergRepository.open(tmp_path, first, fields=('size',)) as old:
        await old.create(first(id='a', size=2))
    async with await IcebergRepository.open(tmp_path, second, fields=('size',)) as new:
        await new.create(second(id='b', size=0.5))
        assert (await new.list(order_by='size')).items == [second(id='b', size=0.5), second(id='a', size=2.0)]
