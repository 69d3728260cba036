"""The table of a repository in DuckDB: its columns, and the statements that create and change it.

Every value is bound; the names of the table and its columns are validated and quoted.
"""

# ruff: noqa: S608 - names are validated and quoted; every value is bound

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ._kinds import Cell, Column, Kind
from ._model import EncodedRow
from ._questions_sql import ColumnNames, Conversion

BODY: Final = '_row'
"""The column of the whole row, as JSON; no field of a model starts with an underscore."""

Value: TypeAlias = Cell | list[str] | list[Cell | None] | None


class Query(NamedTuple):
    """A statement and its parameters."""

    sql: str
    parameters: Sequence[Value] = ()


_TYPES: Final = {
    Kind.TEXT: 'VARCHAR',
    Kind.UUID: 'VARCHAR',
    Kind.INTEGER: 'BIGINT',
    Kind.REAL: 'DOUBLE',
    Kind.BOOLEAN: 'BOOLEAN',
    Kind.MOMENT: 'TIMESTAMP',
}
"""Column types, as other programs expect them."""

_CELL_TYPES: Final = {**_TYPES, Kind.BOOLEAN: 'BIGINT', Kind.MOMENT: 'BIGINT'}
"""Types of cells, as they are bound."""

_CONVERSIONS: Final = {
    Kind.BOOLEAN: Conversion('{}::BOOLEAN', '{}::BIGINT'),
    Kind.MOMENT: Conversion('make_timestamp({}::BIGINT)', 'epoch_us({})'),
}


class DuckdbTable:
    """A table with columns for the key, for each filterable field, and for the row.

    Args:
        name: The name of the table.
        key: The key.
        columns: The filterable fields other than the key.
    """

    def __init__(self, name: str, key: Column, columns: Iterable[Column]) -> None:
        self.name = name
        """The name of the table."""
        self._table = _quoted(name)
        self._columns = [key, *sorted(columns, key=lambda column: column.name)]
        names = _column_names(column.name for column in self._columns)
        quoted = {field: _quoted(column) for field, column in names.items()}
        self.names: Final = ColumnNames(
            table=self._table,
            key=key.name,
            columns=quoted,
            key_column=quoted[key.name],
            body_column=BODY,
            conversions=_CONVERSIONS,
            list_types={kind: f'{type_}[]' for kind, type_ in _CELL_TYPES.items()},
        )
        """The names of the table and its columns."""
        self._key = quoted[key.name]
        types = [_TYPES[column.kind] for column in self._columns]
        self.types: Mapping[str, str] = {**dict(zip(names.values(), types, strict=True)), BODY: 'VARCHAR'}
        """The types of the table's columns, keyed by name, in order."""

    def described(self) -> Query:
        """Select the names and types of the table's columns; no rows if the table does not exist."""
        return Query(
            'SELECT column_name, data_type FROM duckdb_columns() WHERE lower(table_name) = ? ORDER BY column_index',
            [self.name.lower()],  # DuckDB ignores case
        )

    def create(self) -> Query:
        """Create the table."""
        columns = [f'{_quoted(name)} {type_}' for name, type_ in self.types.items()]
        columns[0] += ' PRIMARY KEY'
        columns[-1] += ' NOT NULL'
        return Query(f'CREATE TABLE {self._table} ({", ".join(columns)})')

    def drop(self) -> Query:
        """Drop the table."""
        return Query(f'DROP TABLE {self._table}')

    def all_rows(self) -> Query:
        """Select the key and the body of every row."""
        return Query(f'SELECT {self._key}, {BODY} FROM {self._table}')

    def existing(self, keys: list[str]) -> Query:
        """Select those of the keys that have a row."""
        return Query(
            f'SELECT {self._key} FROM {self._table} WHERE {self._key} IN (SELECT unnest(?::VARCHAR[]))', [keys]
        )

    def delete(self, keys: list[str]) -> Query:
        """Delete the rows with these keys."""
        return Query(f'DELETE FROM {self._table} WHERE {self._key} IN (SELECT unnest(?::VARCHAR[]))', [keys])

    def insert(self, rows: Sequence[EncodedRow]) -> Query:
        """Insert rows. One list per column is a hundred times as fast as one statement per row."""
        kinds = [*(column.kind for column in self._columns), Kind.TEXT]
        lists = ', '.join(f'unnest(?::{_CELL_TYPES[kind]}[]) AS c{index}' for index, kind in enumerate(kinds))
        values = ', '.join(
            _CONVERSIONS[kind].write.format(f'c{index}') if kind in _CONVERSIONS else f'c{index}'
            for index, kind in enumerate(kinds)
        )
        cells: list[Value] = [[_cell(row, column.name) for row in rows] for column in self._columns]
        names = ', '.join(map(_quoted, self.types))
        return Query(
            f'INSERT INTO {self._table} ({names}) SELECT {values} FROM (SELECT {lists})',
            [*cells, [row.body for row in rows]],
        )


def _column_names(fields: Iterable[str]) -> dict[str, str]:
    """Return a column for each field: its name, with underscores appended if that is taken, as DuckDB ignores case."""
    names: dict[str, str] = {}
    for field in fields:
        name = field
        while name.casefold() in map(str.casefold, [*names.values(), BODY]):
            name += '_'
        names[field] = name
    return names


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(row: EncodedRow, name: str) -> Cell | None:
    return row.cells.get(name, row.key)
