"""The table of a repository in a database of SQL: how it is made, found again and widened, and how rows are written.

Nothing that a caller names becomes SQL, but for the name of the table, which is checked: columns are `c1`, `c2`, …, and
the table `repository` says which field each is of. All columns but `key` and `body` can be made again from the bodies.
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
"""Marks a database as ours where no store has, in the table `meta`."""

_NAME: Final = re.compile('[a-z][a-z0-9_]{0,47}')
"""With our prefixes it is shorter than the 63 bytes that a name in PostgreSQL has."""

_CHUNK: Final = 500
"""Rows that are read at once where a column is filled."""


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """The columns of a table, as all processes that use it must know them."""

    made: int
    """How many there ever were."""
    columns: Mapping[str, tuple[Kind, str]]
    """Kind and name, by field."""

    def render(self) -> str:
        """Return one text for one layout."""
        columns = sorted((int(column[1:]), field, kind, column) for field, (kind, column) in self.columns.items())
        return json.dumps({'made': self.made, 'columns': [[field, kind, column] for _, field, kind, column in columns]})


@dataclass(frozen=True, kw_only=True)
class Table(Generic[T]):
    """The table of a repository, as it was last seen."""

    dialect: Dialect
    """That of its database."""
    name: str
    """What it is called in `repository`; in the database it is `rows_` and this."""
    asked: RowModel[T]
    """The model with the fields that this repository is asked by."""
    kept: RowModel[T]
    """The model with all fields that have columns: others may ask by more."""
    names: ColumnNames
    """The names of the columns."""
    layout: str
    """The columns, as `repository` has them."""

    @property
    def upsert_sql(self) -> str:
        """Adds or replaces a row: key, body, and the columns in the order of `kept`."""
        changes = ', '.join(f'{column} = excluded.{column}' for column in self._columns)
        return f'{self._insert_sql} DO UPDATE SET {changes}'

    @property
    def create_sql(self) -> str:
        """Adds a row as `upsert_sql` does, and returns it; nothing, if it is there."""
        return f'{self._insert_sql} DO NOTHING RETURNING key'

    @property
    def _columns(self) -> list[str]:
        return ['body', *(self.names.columns[name] for name in self.kept.columns)]

    @property
    def _insert_sql(self) -> str:
        columns = ['key', *self._columns]
        marks = ', '.join(f'?{number}' for number, _ in enumerate(columns, 1))
        return f'INSERT INTO {self.names.table} ({", ".join(columns)}) VALUES ({marks}) ON CONFLICT (key)'


def table_name(model: str, name: str | None) -> str:
    """Return the name of a table, made of that of the model if none is given. Raises `ValidationError`."""
    made = re.sub('(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])', '_', model).lower() if name is None else name
    if not isinstance(cast('object', made), str) or not _NAME.fullmatch(made):
        raise ValidationError(
            'name',
            f'{made!r} is no name for a table. Give `name=`: at most 48 of a to z, 0 to 9 and _, a letter first.',
        )
    return made


def mark(dialect: Dialect) -> Operation[None]:
    """Make sure that a database is one of repositories or of a store, and mark it if it is empty.

    Raises:
        StoreFormatError: It is something else.
    """
    if not (yield Statement(dialect.table_exists, ('meta',))):
        if tables := (yield Statement(dialect.any_table)):
            raise StoreFormatError(
                f'The database has a table {tables[0][0]!r} and no mark of ours: it belongs to something else. '
                'Choose another file or schema.'
            )
        yield Statement('CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)')
        yield Statement("INSERT INTO meta (key, value) VALUES ('format', ?1), ('version', '1')", (FORMAT,))
        return
    rows = yield Statement("SELECT value FROM meta WHERE key = 'format'")
    found = rows[0][0] if rows else None
    if found not in (FORMAT, STORE_FORMAT):
        raise StoreFormatError(
            f'The database says that its format is {found!r}, not {FORMAT!r}. Choose another file or schema.'
        )


def open_table(dialect: Dialect, name: str, asked: RowModel[T]) -> Operation[Table[T]]:
    """Find a table, or make it; add columns for what could not be asked by before, and fill them.

    Run it in a transaction that writes.

    Raises:
        InvalidFieldError: It has another key.
        UnreadableRowError: A row cannot be read, so that a column cannot be filled.
        InvalidRowError: A row has a value that a new column cannot have.
    """
    if not (yield Statement(dialect.table_exists, ('repository',))):
        yield repository_table()
    rows = yield Statement('SELECT key_field, key_kind, layout FROM repository WHERE name = ?1', (name,))
    if not rows:
        yield from _create(dialect, name, asked.key)
        rows = [(asked.key.name, asked.key.kind.value, NO_COLUMNS)]
    key_field, key_kind, layout = map(str, rows[0])
    if (key_field, key_kind) != (asked.key.name, asked.key.kind):
        raise InvalidFieldError(
            asked.name,
            asked.key.name,
            f'the table {name!r} has the key {key_field!r} ({key_kind}). Open it with that, or give another `name`',
        )
    found = _read_layout(layout)
    table = _planned(dialect, name, asked, found)
    before, now = ({column for _, column in each.columns.values()} for each in (found, _read_layout(table.layout)))
    yield from _drop(table, sorted(before - now))
    yield from _add(
        table, [each for each in table.kept.columns.values() if table.names.column(each.name) not in before]
    )
    if table.layout != layout:
        yield Statement('UPDATE repository SET layout = ?2 WHERE name = ?1', (name, table.layout))
    return table


def current(table: Table[T]) -> Operation[Table[T]]:
    """Return the table as it is now: another process may have added columns, which we must fill in what we write."""
    rows = yield Statement('SELECT layout FROM repository WHERE name = ?1', (table.name,))
    if rows and rows[0][0] == table.layout:
        return table
    return (yield from open_table(table.dialect, table.name, table.asked))


def create_row(table: Table[T], row: EncodedRow) -> Operation[None]:
    """Add a row. Raises `RowExistsError`."""
    if not (yield Statement(table.create_sql, (row.key, row.body, *row.cells.values()))):
        raise RowExistsError(table.asked.name, row.key)


def upsert_row(table: Table[T], row: EncodedRow) -> Operation[None]:
    """Add or replace a row."""
    yield Statement(table.upsert_sql, (row.key, row.body, *row.cells.values()))


def delete_row(table: Table[T], key: str) -> Operation[set[str]]:
    """Remove a row; return its key if the row existed."""
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


def _planned(dialect: Dialect, name: str, asked: RowModel[T], found: _Layout) -> Table[T]:
    """Return the table as it shall be: what can be asked by, and what others ask by as long as the model has it.

    A field whose kind has changed gets another column, and no number is used again: who has not seen the change yet
    asks for a column that is gone, and is told so.
    """
    others = [field for field in found.columns if field not in asked.columns and _still_has(asked, field, found)]
    kept = RowModel(asked.model, key=asked.key.name, fields=[*asked.columns, *others])
    made = found.made
    columns: dict[str, tuple[Kind, str]] = {
        field: found.columns[field] for field in found.columns if _still_has(kept, field, found)
    }
    for field, column in kept.columns.items():
        if field not in columns:
            made += 1
            columns[field] = (column.kind, f'c{made}')
    names = ColumnNames(
        table=f'rows_{name}', key=asked.key.name, columns={field: column for field, (_, column) in columns.items()}
    )
    layout = _Layout(made=made, columns=columns).render()
    return Table(dialect=dialect, name=name, asked=asked, kept=kept, names=names, layout=layout)


def _still_has(model: RowModel[T], field: str, found: _Layout) -> bool:
    """Return whether the model has a field as the table has it."""
    info = model.model.model_fields.get(field)
    column = None if info is None else column_of(field, info.annotation)
    return column is not None and column.kind is found.columns[field][0]


def _drop(table: Table[T], columns: Sequence[str]) -> Operation[None]:
    for column in columns:
        yield Statement(f'DROP INDEX by_{column}_{table.names.table}')
        yield Statement(f'ALTER TABLE {table.names.table} DROP COLUMN {column}')


def _add(table: Table[T], columns: Sequence[Column]) -> Operation[None]:
    """Add columns, with an index each, and fill them."""
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
    while found := (
        yield Statement(f'SELECT key, body FROM {rows} WHERE key > ?1 ORDER BY key LIMIT {_CHUNK}', (last,))
    ):
        encoded = [table.kept.encode_again(str(key), str(body)) for key, body in found]
        values = [(row.key, *(row.cells[field] for field in fields)) for row in encoded]
        yield Statement(f'UPDATE {rows} SET {changes} WHERE key = ?1', (), values)
        last = str(found[-1][0])


def _type_of(kind: Kind, dialect: Dialect) -> str:
    if kind.cell_type is str:
        return dialect.text_type
    return 'DOUBLE PRECISION' if kind.cell_type is float else 'BIGINT'
