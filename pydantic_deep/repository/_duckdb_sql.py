"""The statements of one table of DuckDB. Every value is bound; the names of the table and its columns are checked."""

# ruff: noqa: S608 - names that are checked and quoted; every value is bound

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ._kinds import Cell, Column, Kind
from ._model import EncodedRow
from ._question import Condition, OneOf, Question

BODY: Final = '_row'
"""The column with all of a row, as JSON; no field of a model begins with an underscore."""

Value: TypeAlias = Cell | list[str] | list[Cell | None] | None


class Query(NamedTuple):
    """A statement and its parameters."""

    sql: str
    parameters: Sequence[Value] = ()


class _Type(NamedTuple):
    """How cells of a kind are kept, so that other programs find what they expect."""

    name: str
    """The type of the column."""
    given: str
    """That of a parameter."""
    write: str
    """What makes a value of the column from a parameter."""
    read: str
    """What makes a cell from a value of the column."""


_TEXT: Final = _Type('VARCHAR', 'VARCHAR', '{}', '{}')
_TYPES: Final = {
    Kind.TEXT: _TEXT,
    Kind.UUID: _TEXT,
    Kind.INTEGER: _Type('BIGINT', 'BIGINT', '{}', '{}'),
    Kind.REAL: _Type('DOUBLE', 'DOUBLE', '{}', '{}'),
    Kind.BOOLEAN: _Type('BOOLEAN', 'BIGINT', '{}::BOOLEAN', '{}::BIGINT'),
    Kind.MOMENT: _Type('TIMESTAMP', 'BIGINT', 'make_timestamp({})', 'epoch_us({})'),
}


class DuckdbTable:
    """A table with a column for the key, one for each field that can be asked by, and one for the row.

    Args:
        name: That of the table.
        key: The key.
        columns: The fields that can be asked by, but for the key.
    """

    def __init__(self, name: str, key: Column, columns: Iterable[Column]) -> None:
        self.name = name
        """That of the table."""
        self._table = _quoted(name)
        self._columns = [key, *sorted(columns, key=lambda column: column.name)]
        names = _column_names(column.name for column in self._columns)
        self._names = {name: _quoted(unlike) for name, unlike in names.items()}
        self._key = self._names[key.name]
        kinds = [_TYPES[column.kind].name for column in self._columns]
        self.types: Mapping[str, str] = {**dict(zip(names.values(), kinds, strict=True)), BODY: 'VARCHAR'}
        """The types of its columns by name, in order."""

    def described(self) -> Query:
        """Return the name and the type of each column that the table has, if it is there."""
        return Query(
            'SELECT column_name, data_type FROM duckdb_columns() WHERE lower(table_name) = ? ORDER BY column_index',
            [self.name.lower()],  # DuckDB ignores case
        )

    def create(self) -> Query:
        """Make the table."""
        columns = [f'{_quoted(name)} {type_}' for name, type_ in self.types.items()]
        columns[0] += ' PRIMARY KEY'
        columns[-1] += ' NOT NULL'
        return Query(f'CREATE TABLE {self._table} ({", ".join(columns)})')

    def drop(self) -> Query:
        """Remove the table."""
        return Query(f'DROP TABLE {self._table}')

    def all_rows(self) -> Query:
        """Return the key and the body of every row."""
        return Query(f'SELECT {self._key}, {BODY} FROM {self._table}')

    def get(self, key: str) -> Query:
        """Return the body of one row."""
        return Query(f'SELECT {BODY} FROM {self._table} WHERE {self._key} = ?', [key])

    def here(self, keys: list[str]) -> Query:
        """Return which of the keys have a row."""
        return Query(
            f'SELECT {self._key} FROM {self._table} WHERE {self._key} IN (SELECT unnest(?::VARCHAR[]))', [keys]
        )

    def delete(self, keys: list[str]) -> Query:
        """Remove the rows with these keys."""
        return Query(f'DELETE FROM {self._table} WHERE {self._key} IN (SELECT unnest(?::VARCHAR[]))', [keys])

    def insert(self, rows: Sequence[EncodedRow]) -> Query:
        """Add rows: a list for each column is a hundred times as fast as a statement for each row."""
        types = [_TYPES[column.kind] for column in self._columns] + [_TEXT]
        lists = ', '.join(f'unnest(?::{type_.given}[]) AS c{index}' for index, type_ in enumerate(types))
        values = ', '.join(type_.write.format(f'c{index}') for index, type_ in enumerate(types))
        given: list[Value] = [[_cell(row, column.name) for row in rows] for column in self._columns]
        names = ', '.join(map(_quoted, self.types))
        return Query(
            f'INSERT INTO {self._table} ({names}) SELECT {values} FROM (SELECT {lists})',
            [*given, [row.body for row in rows]],
        )

    def count(self, conditions: Sequence[Condition]) -> Query:
        """Return how many rows there are."""
        sql, parameters = _joined(map(self._condition, conditions))
        return Query(f'SELECT count(*) FROM {self._table} WHERE {sql}', parameters)

    def page(self, question: Question) -> Query:
        """Return the key, the cell that is ordered by, and the body of the rows of a page, and of one more."""
        sql, parameters = _joined([*map(self._condition, question.conditions), *self._after(question)])
        key, order = self._key, question.order
        direction = 'DESC NULLS LAST' if question.is_descending else 'ASC NULLS FIRST'
        cell, ordered = 'NULL', f'{key} {direction}'
        if order is not None:
            name = self._names[order.name]
            cell, ordered = _TYPES[order.kind].read.format(name), f'{name} {direction}, {key}'
        return Query(
            f'SELECT {key}, {cell}, {BODY} FROM {self._table} WHERE {sql} ORDER BY {ordered} LIMIT ?',
            [*parameters, question.limit + 1],
        )

    def _condition(self, condition: Condition) -> Query:
        name, type_ = self._names[condition.column.name], _TYPES[condition.column.kind]
        if isinstance(condition, OneOf):
            some = type_.write.format(f'unnest(?::{type_.given}[])')
            or_null = f' OR {name} IS NULL' if condition.or_null else ''
            return Query(f'{name} IN (SELECT {some}){or_null}', [list(condition.values)])
        bound = _bound(type_)
        compared = [Query(f'{name} {operator} {bound}', [cell]) for operator, cell in condition.bounds]
        return _joined([Query(f'{name} IS NOT NULL'), *compared])

    def _after(self, question: Question) -> Iterator[Query]:
        """Yield the condition that a row comes after the page before."""
        if question.after is None:
            return
        cell, last = question.after.cell, question.after.key
        sign = '<' if question.is_descending else '>'
        if question.order is None:
            yield Query(f'{self._key} {sign} ?', [last])
            return
        name = self._names[question.order.name]
        if cell is None:
            more = '' if question.is_descending else f' OR {name} IS NOT NULL'
            yield Query(f'({name} IS NULL AND {self._key} > ?){more}', [last])
            return
        bound = _bound(_TYPES[question.order.kind])
        more = f' OR {name} IS NULL' if question.is_descending else ''
        yield Query(f'{name} {sign} {bound} OR ({name} = {bound} AND {self._key} > ?){more}', [cell, cell, last])


def _column_names(fields: Iterable[str]) -> dict[str, str]:
    """Return a column for each field: its name, with underscores where DuckDB, which ignores case, has it already."""
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


def _joined(queries: Iterable[Query]) -> Query:
    all_of = list(queries)
    sql = ' AND '.join(f'({query.sql})' for query in all_of)
    return Query(sql or 'true', [parameter for query in all_of for parameter in query.parameters])


def _bound(type_: _Type) -> str:
    return type_.write.format(f'?::{type_.given}')
