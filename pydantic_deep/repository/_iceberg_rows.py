"""Rows as Arrow tables, which Iceberg reads and writes.

pyarrow is untyped, so unknown types are allowed here, and only here.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import BooleanType, DoubleType, IcebergType, LongType, NestedField, StringType, TimestamptzType
from sqlalchemy.exc import SQLAlchemyError

from ._base import StoredRow
from ._iceberg_filters import stored_cell
from ._kinds import Cell, Column, Kind
from ._model import EncodedRow
from ._question import Position, Question

BODY: Final = '_row'
"""The column of the whole row, as JSON; no field of a model starts with an underscore."""

_HAS_VALUE: Final = '_has_value'
"""A temporary column by which null is ordered before or after all values."""

_TYPES: Final[dict[Kind, IcebergType]] = {
    Kind.TEXT: StringType(),
    Kind.UUID: StringType(),
    Kind.INTEGER: LongType(),
    Kind.REAL: DoubleType(),
    Kind.BOOLEAN: BooleanType(),
    Kind.MOMENT: TimestamptzType(),
}

FAILURES: Final[tuple[type[Exception], ...]] = (
    OSError,
    SQLAlchemyError,
    exceptions.RESTError,
    exceptions.NoSuchTableError,
    exceptions.NoSuchNamespaceError,
    exceptions.NotInstalledError,
)
"""Errors if a catalogue or a file is missing or unreachable."""

DAMAGES: Final[tuple[type[Exception], ...]] = (
    ValueError,
    EOFError,
    SystemError,  # raised by the compiled Avro reader for invalid lengths
    pa.ArrowException,
    exceptions.ValidationError,
)
"""Errors if a file is damaged or has another format."""

_PROPERTIES: Final = {
    'commit.retry.num-retries': '0',  # a retry would add rows to a changed table; we check for changes first
    'commit.manifest-merge.enabled': 'true',  # otherwise each commit reads one file more than the one before it
    'write.metadata.delete-after-commit.enabled': 'true',  # otherwise each leaves a list of all before it
}
"""Required properties of a table."""

_Direction: TypeAlias = Literal['ascending', 'descending']


def schema_of(key: Column, columns: Iterable[Column]) -> Schema:
    """Return the schema of a table: the key, the row, and each filterable field."""
    fields = [
        NestedField(1, key.name, StringType(), required=True),
        NestedField(2, BODY, StringType(), required=True),
        *(
            NestedField(number, column.name, _TYPES[column.kind], required=False)
            for number, column in enumerate(columns, 3)
        ),
    ]
    return Schema(*fields, identifier_field_ids=[1])


def open_table(catalog: Catalog, name: tuple[str, str], schema: Schema) -> Table:
    """Return a table, which is created if it does not exist."""
    catalog.create_namespace_if_not_exists(name[0])
    return catalog.create_table_if_not_exists(name, schema, properties=_PROPERTIES)


def append_rows(transaction: Transaction, key: Column, columns: Collection[Column], rows: list[EncodedRow]) -> None:
    """Add rows to a table, in the state that it has in the transaction."""
    values: dict[str, list[Cell | None]] = {key.name: [row.key for row in rows], BODY: [row.body for row in rows]}
    for column in columns:
        cells = (row.cells[column.name] for row in rows)
        values[column.name] = [None if cell is None else stored_cell(column.kind, cell) for cell in cells]
    schema = transaction.table_metadata.schema().as_arrow()
    transaction.append(pa.Table.from_pydict(values, schema=schema))


def read_bodies(table: Table, key: Column, where: BooleanExpression) -> Iterator[tuple[str, str]]:
    """Yield the keys and bodies of rows."""
    for batch in table.scan(where, selected_fields=(key.name, BODY)).to_arrow_batch_reader():
        yield from zip(batch.column(key.name).to_pylist(), batch.column(BODY).to_pylist(), strict=True)


def read_keys(table: Table, key: Column, where: BooleanExpression) -> set[str]:
    """Return the keys of rows."""
    rows = table.scan(where, selected_fields=(key.name,)).to_arrow()
    return set(cast('list[str]', rows.column(key.name).to_pylist()))


def read_page(table: Table, key: Column, where: BooleanExpression, question: Question) -> list[StoredRow]:
    """Return the rows of a page, and the row after it if there is one.

    Batches of the rows that pass the filter are read one at a time; only one page is in memory.
    """
    order = key if question.order is None else question.order
    columns = dict.fromkeys((key.name, order.name, BODY))
    page = None
    for batch in table.scan(where, selected_fields=tuple(columns)).to_arrow_batch_reader():
        rows = pa.Table.from_batches([batch]).select(list(columns))
        rows = rows if page is None else pa.concat_tables([page, rows])
        page = _ordered(rows, key, order, is_descending=question.is_descending).slice(0, question.limit + 1)
    if page is None:
        return []
    bodies = cast('list[str]', page.column(BODY).to_pylist())
    keys = cast('list[str]', page.column(key.name).to_pylist())
    cells = [None] * len(keys) if question.order is None else _cells(page.column(order.name), order.kind)
    return [StoredRow(Position(cell, last), body) for cell, last, body in zip(cells, keys, bodies, strict=True)]


def _ordered(rows: pa.Table, key: Column, order: Column, *, is_descending: bool) -> pa.Table:
    direction: _Direction = 'descending' if is_descending else 'ascending'
    if order is key:
        return rows.sort_by([(key.name, direction)])
    marked = rows.append_column(_HAS_VALUE, pc.is_valid(rows.column(order.name)))
    by = [(_HAS_VALUE, direction), (order.name, direction), (key.name, 'ascending')]
    return marked.sort_by(by).select(rows.column_names)


def _cells(values: pa.ChunkedArray, kind: Kind) -> list[Cell | None]:
    is_integer = kind in (Kind.BOOLEAN, Kind.MOMENT)
    return cast('list[Cell | None]', (values.cast(pa.int64()) if is_integer else values).to_pylist())
