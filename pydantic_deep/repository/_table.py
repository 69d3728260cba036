"""The table of a repository in a SQL database: how it is created, opened and extended, and how rows are written.

No name that a caller chooses becomes SQL, except for the validated name of the table: columns are `c1`, `c2`, …, and
the table `repository` maps them to fields. All columns other than `key` and `body` can be derived from the bodies.
"""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from pydantic import BaseModel

from pydantic_deep.errors import ValidationError
from pydantic_deep.store import StoreFormatError
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.store.sql.dialect import FORMAT as STORE_FORMAT
from pydantic_deep.store.sql.dialect import Dialect
from pydantic_deep.store.sql.repository_tables import NO_COLUMNS, repository_table, rows_table

from ._kinds import Column, Kind, column_of
from ._model import EncodedRow, RowModel
from ._questions_sql import ColumnNames
from .errors import InvalidFieldError, RowExistsError

T = TypeVar('T', bound=BaseModel)

FORMAT: Final = 'pydantic-deep repository'
"""Marks a database as ours if it contains no store, in the table `meta`."""

_NAME: Final = re.compile('[a-z][a-z0-9_]{0,47}')
"""With our prefixes it fits into the 63 bytes of a name in PostgreSQL."""

_CHUNK: Final = 500
"""Number of rows per query when a column is filled."""


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """The columns of a table, as shared by all processes that use it."""

    made: int
    """Number of columns ever created."""
    columns: Mapping[str, tuple[Kind, str]]
    """Kind and column name, keyed by field."""

    def render(self) -> str:
        """Return the canonical JSON of the layout."""
        columns = sorted((int(column[1:]), field, kind, column) for field, (kind, column) in self.columns.items())
        return json.dumps({'made': self.made, 'columns': [[field, kind, column] for _, field, kind, column in columns]})


@dataclass(frozen=True, kw_only=True)
class Table(Generic[T]):
    """The table of a repository, with the layout that it had when it was last read."""

    dialect: Dialect
    """The SQL dialect of the database."""
    name: str
    """Its name in the table `repository`; in the database it has the prefix `rows_`."""
    model: RowModel[T]
    """The model with the filterable fields of this repository."""
    full_model: RowModel[T]
    """The model with all fields that have columns, including those of other repositories on the table."""
    names: ColumnNames
    """The names of the table's columns."""
    layout: str
    """The columns, as stored in the table `repository`."""

    @property
    def upsert_sql(self) -> str:
        """Inserts or replaces a row; the parameters are the key, the body, and the columns in the order of
        `full_model`.
        """
        changes = ', '.join(f'{column} = excluded.{column}' for column in self._columns)
        return f'{self._insert_sql} DO UPDATE SET {changes}'

    @property
    def create_sql(self) -> str:
        """Inserts a row like `upsert_sql`, and returns its key; no rows if the key exists."""
        return f'{self._insert_sql} DO NOTHING RETURNING key'

    @property
    def _columns(self) -> list[str]:
        return ['body', *(self.names.columns[name] for name in self.full_model.columns)]

    @property
    def _insert_sql(self) -> str:
        columns = ['key', *self._columns]
        marks = ', '.join(f'?{number}' for number, _ in enumerate(columns, 1))
        return f'INSERT INTO {self.names.table} ({", ".join(columns)}) VALUES ({marks}) ON CONFLICT (key)'


def table_name(model: str, name: str | None) -> str:
    """Return the name of a table, derived from that of the model if none is given. Raises `ValidationError`."""
    table = re.sub('(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])', '_', model).lower() if name is None else name
    if not isinstance(cast('object', table), str) or not _NAME.fullmatch(table):
        raise ValidationError(
            'name',
            f'{table!r} is not a valid table name. Pass `name=`: at most 48 of a to z, 0 to 9 and _, starting with a letter.',
        )
    return table


def mark(dialect: Dialect) -> Operation[None]:
    """Verify that a database contains repositories or a store, and mark it if it is empty.

    Raises:
        StoreFormatError: The database belongs to another program.
    """
    if not (yield Statement(dialect.table_exists, ('meta',))):
        if tables := (yield Statement(dialect.any_table)):
            raise StoreFormatError(
                f'The database has a table {tables[0][0]!r} and is not a store: it belongs to another program. '
                'Choose another file or schema.'
            )
        yield Statement('CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)')
        yield Statement("INSERT INTO meta (key, value) VALUES ('format', ?1), ('version', '1')", (FORMAT,))
        return
    rows = yield Statement("SELECT value FROM meta WHERE key = 'format'")
    format = rows[0][0] if rows else None
    if format not in (FORMAT, STORE_FORMAT):
        raise StoreFormatError(f'The database format is {format!r}, not {FORMAT!r}. Choose another file or schema.')


def open_table(dialect: Dialect, name: str, model: RowModel[T]) -> Operation[Table[T]]:
    """Open a table, creating it if necessary; add columns for newly filterable fields, and fill them.

    Run this in a transaction that writes, without other writes.

    Raises:
        InvalidFieldError: The table has another key.
        UnreadableRowError: A row cannot be decoded, so a column cannot be filled.
        InvalidRowError: A row has a value that a new column cannot store.
    """
    if not (yield Statement(dialect.table_exists, ('repository',))):
        yield repository_table()
    rows = yield Statement('SELECT key_field, key_kind, layout FROM repository WHERE name = ?1', (name,))
    if not rows:
        yield from _create(dialect, name, model.key)
        rows = [(model.key.name, model.key.kind.value, NO_COLUMNS)]
    key_field, key_kind, layout = map(str, rows[0])
    if (key_field, key_kind) != (model.key.name, model.key.kind):
        raise InvalidFieldError(
            model.name,
            model.key.name,
            f'the table {name!r} has the key {key_field!r} ({key_kind}). Use that key, or another `name`',
        )
    stored = _read_layout(layout)
    table = _planned(dialect, name, model, stored)
    before, now = (
        {column for _, column in layout_.columns.values()} for layout_ in (stored, _read_layout(table.layout))
    )
    yield from _drop(table, sorted(before - now))
    yield from _add(
        table, [column for column in table.full_model.columns.values() if table.names.column(column.name) not in before]
    )
    if table.layout != layout:
        yield Statement('UPDATE repository SET layout = ?2 WHERE name = ?1', (name, table.layout))
    return table


def is_current(table: Table[T]) -> Operation[bool]:
    """Return whether the table still has the layout: another process may have added columns, which our writes must fill."""
    rows = yield Statement('SELECT layout FROM repository WHERE name = ?1', (table.name,))
    return bool(rows) and rows[0][0] == table.layout


def create_row(table: Table[T], row: EncodedRow) -> Operation[None]:
    """Insert a row. Raises `RowExistsError`."""
    if not (yield Statement(table.create_sql, (row.key, row.body, *row.cells.values()))):
        raise RowExistsError(table.model.name, row.key)


def upsert_row(table: Table[T], row: EncodedRow) -> Operation[None]:
    """Insert or replace a row."""
    yield Statement(table.upsert_sql, (row.key, row.body, *row.cells.values()))


def delete_row(table: Table[T], key: str) -> Operation[set[str]]:
    """Delete a row; return its key if the row existed."""
    rows = yield Statement(f'DELETE FROM {table.names.table} WHERE key = ?1 RETURNING key', (key,))
    return {str(key) for (key,) in rows}


def _create(dialect: Dialect, name: str, key: Column) -> Operation[None]:
    yield rows_table(dialect, f'rows_{name}')
    values = (name, key.name, key.kind.value, NO_COLUMNS)
    yield Statement('INSERT INTO repository (name, key_field, key_kind, layout) VALUES (?1, ?2, ?3, ?4)', values)


def _read_layout(text: str) -> _Layout:
    parsed = cast('Mapping[str, object]', json.loads(text))
    columns = cast('list[tuple[str, str, str]]', parsed['columns'])
    made = cast('int', parsed['made'])
    return _Layout(made=made, columns={field: (Kind(kind), column) for field, kind, column in columns})


def _planned(dialect: Dialect, name: str, model: RowModel[T], stored: _Layout) -> Table[T]:
    """Return the table as planned, with this repository's fields and those of others that the model still has.

    A field whose kind has changed gets a new column, and no number is reused: a process that has not seen the change
    queries a missing column, and gets an error.
    """
    others = [field for field in stored.columns if field not in model.columns and _still_has(model, field, stored)]
    full_model = RowModel(model.model, key=model.key.name, fields=[*model.columns, *others])
    made = stored.made
    columns: dict[str, tuple[Kind, str]] = {
        field: stored.columns[field] for field in stored.columns if _still_has(full_model, field, stored)
    }
    for field, column in full_model.columns.items():
        if field not in columns:
            made += 1
            columns[field] = (column.kind, f'c{made}')
    names = ColumnNames(
        table=f'rows_{name}', key=model.key.name, columns={field: column for field, (_, column) in columns.items()}
    )
    layout = _Layout(made=made, columns=columns).render()
    return Table(dialect=dialect, name=name, model=model, full_model=full_model, names=names, layout=layout)


def _still_has(model: RowModel[T], field: str, layout: _Layout) -> bool:
    """Return whether the model has a field of the kind that the table stores."""
    info = model.model.model_fields.get(field)
    column = None if info is None else column_of(field, info.annotation)
    return column is not None and column.kind is layout.columns[field][0]


def _drop(table: Table[T], columns: Sequence[str]) -> Operation[None]:
    for column in columns:
        yield Statement(f'DROP INDEX by_{column}_{table.names.table}')
        yield Statement(f'ALTER TABLE {table.names.table} DROP COLUMN {column}')


def _add(table: Table[T], columns: Sequence[Column]) -> Operation[None]:
    """Add indexed columns, and fill them."""
    rows = table.names.table
    for column in columns:
        name = table.names.columns[column.name]
        yield Statement(f'ALTER TABLE {rows} ADD COLUMN {name} {_type_of(column.kind, table.dialect)}')
        yield Statement(f'CREATE INDEX by_{name}_{rows} ON {rows} ({name}, key)')
    if columns:
        yield from _fill(table, [column.name for column in columns])


def _fill(table: Table[T], fields: Sequence[str]) -> Operation[None]:
    rows, columns = table.names.table, table.names.columns
    changes = ', '.join(f'{columns[field]} = ?{number}' for number, field in enumerate(fields, 2))
    last = ''
    while page := (
        yield Statement(f'SELECT key, body FROM {rows} WHERE key > ?1 ORDER BY key LIMIT {_CHUNK}', (last,))
    ):
        encoded = [table.full_model.encode_again(str(key), str(body)) for key, body in page]
        values = [(row.key, *(row.cells[field] for field in fields)) for row in encoded]
        yield Statement(f'UPDATE {rows} SET {changes} WHERE key = ?1', (), values)
        last = str(page[-1][0])


def _type_of(kind: Kind, dialect: Dialect) -> str:
    if kind.cell_type is str:
        return dialect.text_type
    return 'DOUBLE PRECISION' if kind.cell_type is float else 'BIGINT'
