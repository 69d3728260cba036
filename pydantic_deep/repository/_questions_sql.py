"""Queries as SQL for SQLite, PostgreSQL and DuckDB. Column names are ours, and every value is bound."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from pydantic_deep.store.engine import Operation, Row, Statement, Value

from ._base import StoredRow
from ._kinds import Cell, Column, Kind
from ._question import Condition, OneOf, Position, Question


class Conversion(NamedTuple):
    """Conversion of cells of a kind, in an engine that stores them as another type."""

    write: str
    """An expression for the column's value, from the cell `{}`."""
    read: str
    """An expression for the cell, from the column `{}`."""


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """The names of a table and its columns, for the fields of a model."""

    table: str
    """Name of the table."""
    key: str
    """The field that is the key."""
    columns: Mapping[str, str]
    """Columns, keyed by field."""
    key_column: str = 'key'
    """The column of the key."""
    body_column: str = 'body'
    """The column of the whole row, as JSON."""
    conversions: Mapping[Kind, Conversion] = field(default_factory=dict[Kind, Conversion])
    """Conversions of the kinds that are not stored as cells."""
    list_types: Mapping[Kind, str] = field(default_factory=dict[Kind, str])
    """Types of lists of cells, in an engine that binds a list as one value."""

    def column(self, field: str) -> str:
        """Return the column of a field."""
        return self.key_column if field == self.key else self.columns[field]


@dataclass
class _Query:
    """The conditions of a query and the values bound in them."""

    names: ColumnNames
    tests: list[str] = field(default_factory=list[str])
    values: list[Value] = field(default_factory=list[Value])

    def bind(self, value: Value, kind: Kind = Kind.TEXT) -> str:
        """Bind a value and return the expression for it."""
        self.values.append(value)
        mark = f'?{len(self.values)}'
        return self.names.conversions[kind].write.format(mark) if kind in self.names.conversions else mark

    def bind_all(self, values: Sequence[Cell], kind: Kind) -> str:
        """Bind values and return the operand of `IN (…)`."""
        list_type = self.names.list_types.get(kind)
        if list_type is None:
            return ', '.join(self.bind(value, kind) for value in values)
        self.values.append(cast('Value', list(values)))
        conversion = self.names.conversions.get(kind)
        value = 'value' if conversion is None else conversion.write.format('value')
        return f'SELECT {value} FROM (SELECT unnest(?{len(self.values)}::{list_type}) AS value)'

    @property
    def where(self) -> str:
        return f' WHERE {" AND ".join(self.tests)}' if self.tests else ''


def get_row(names: ColumnNames, key: str, lock: str = '') -> Operation[str | None]:
    """Return the body of a row; `None` if no row has the key.

    Args:
        names: The table and its columns.
        key: The key.
        lock: `for_update()` in a write that decides by the row.
    """
    sql = f'SELECT {names.body_column} FROM {names.table} WHERE {names.key_column} = ?1{lock}'
    rows = yield Statement(sql, (key,))
    return str(rows[0][0]) if rows else None


def count_rows(names: ColumnNames, conditions: Sequence[Condition]) -> Operation[int]:
    """Count the rows that meet all conditions."""
    query = _filtered(names, conditions)
    rows = yield Statement(f'SELECT COUNT(*) FROM {names.table}{query.where}', query.values)
    return cast('int', rows[0][0])


def list_rows(names: ColumnNames, question: Question) -> Operation[list[StoredRow]]:
    """Return the rows of a page, and the row after it if there is one.

    Rows with null in the ordering field are queried separately, before or after the others, so that each statement
    can start in an index and read no more rows than it returns.
    """
    rows: list[Row] = []
    order, cell = question.order, 'NULL'
    if order is not None:
        cell = names.column(order.name)
        cell = names.conversions[order.kind].read.format(cell) if order.kind in names.conversions else cell
    for query, ordering in _parts(names, question):
        limit = query.bind(question.limit + 1 - len(rows))
        columns = f'{names.key_column}, {names.body_column}, {cell}'
        sql = f'SELECT {columns} FROM {names.table}{query.where} ORDER BY {ordering} LIMIT {limit}'
        rows += yield Statement(sql, query.values)
        if len(rows) > question.limit:
            break
    return [StoredRow(Position(cast('Cell | None', cell), str(key)), str(body)) for key, body, cell in rows]


def _parts(names: ColumnNames, question: Question) -> Iterator[tuple[_Query, str]]:
    """Yield queries with their orders: one by key, or one for null in the ordering field and one for other values."""
    after = question.after
    if question.order is None:
        yield _by_key(_filtered(names, question.conditions), question)
        return
    begins_with_nulls = not question.is_descending
    for has_nulls in (begins_with_nulls, not begins_with_nulls):
        is_here = after is not None and (after.cell is None) is has_nulls
        if after is not None and not is_here and has_nulls is begins_with_nulls:
            continue  # the previous page ended after it
        query = _filtered(names, question.conditions)
        if has_nulls:
            yield _of_nulls(query, question.order, after if is_here else None)
        else:
            yield _of_values(query, question.order, after if is_here else None, is_descending=question.is_descending)


def _by_key(query: _Query, question: Question) -> tuple[_Query, str]:
    key = query.names.key_column
    if question.after is not None:
        query.tests.append(f'{key} {"<" if question.is_descending else ">"} {query.bind(question.after.key)}')
    return query, f'{key} DESC' if question.is_descending else key


def _of_nulls(query: _Query, order: Column, after: Position | None) -> tuple[_Query, str]:
    key = query.names.key_column
    query.tests.append(f'{query.names.column(order.name)} IS NULL')
    if after is not None:
        query.tests.append(f'{key} > {query.bind(after.key)}')
    return query, key


def _of_values(query: _Query, order: Column, after: Position | None, *, is_descending: bool) -> tuple[_Query, str]:
    column, key = query.names.column(order.name), query.names.key_column
    query.tests.append(f'{column} IS NOT NULL')
    if after is not None:
        sign = '<' if is_descending else '>'
        cell, last = query.bind(after.cell, order.kind), query.bind(after.key)
        query.tests.append(f'{column} {sign}= {cell} AND ({column} {sign} {cell} OR {key} > {last})')
    return query, f'{column}{" DESC" if is_descending else ""}, {key}'


def _filtered(names: ColumnNames, conditions: Sequence[Condition]) -> _Query:
    query = _Query(names)
    for condition in conditions:
        query.tests.append(_test(condition, query))
    return query


def _test(condition: Condition, query: _Query) -> str:
    column, kind = query.names.column(condition.column.name), condition.column.kind
    if isinstance(condition, OneOf):
        tests = [f'{column} IN ({query.bind_all(condition.values, kind)})'] if condition.values else []
        tests += [f'{column} IS NULL'] if condition.or_null else []
        return f'({" OR ".join(tests) or "1 = 0"})'
    bounds = [f'{column} {sign} {query.bind(cell, kind)}' for sign, cell in condition.bounds]
    return ' AND '.join([f'{column} IS NOT NULL', *bounds])
