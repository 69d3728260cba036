"""Questions as SQL that SQLite and PostgreSQL both understand. ColumnNames are ours, every value is bound."""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic_deep.store._engine import Operation, Row, Statement, Value
from pydantic_deep.store.sql._statements import integer

from ._question import Condition, OneOf, Position, Question


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """The names of a table and its columns, by the names of a model."""

    table: str
    """The table."""
    key: str
    """The name of the field that is the key; its column is `key`."""
    columns: Mapping[str, str]
    """Columns by names of fields."""

    def column(self, field: str) -> str:
        """Return the column of a field."""
        return 'key' if field == self.key else self.columns[field]


@dataclass
class _Query:
    """The end of a query, as it grows."""

    tests: list[str]
    values: list[Value] = field(default_factory=list[Value])

    def bind(self, value: Value) -> str:
        """Bind a value and return its mark."""
        self.values.append(value)
        return f'?{len(self.values)}'

    @property
    def where(self) -> str:
        return f' WHERE {" AND ".join(self.tests)}' if self.tests else ''


def get_row(names: ColumnNames, key: str) -> Operation[list[Row]]:
    """Return the body of a row, or nothing."""
    return (yield Statement(f'SELECT body FROM {names.table} WHERE key = ?1', (key,)))


def count_rows(names: ColumnNames, conditions: Sequence[Condition]) -> Operation[int]:
    """Count the rows that all conditions hold for."""
    query = _filtered(names, conditions)
    rows = yield Statement(f'SELECT COUNT(*) FROM {names.table}{query.where}', query.values)
    return integer(rows[0][0])


def list_rows(names: ColumnNames, question: Question) -> Operation[list[Row]]:
    """Return key, body and position of the rows of a page, and of one more if there is one.

    Rows where the order is null are asked for by themselves, before or after the others: so each statement walks an
    index to where it begins, and reads no more than it returns.
    """
    found: list[Row] = []
    order = 'key' if question.order is None else names.column(question.order.name)
    for query, ordering in _parts(names, question):
        limit = query.bind(question.limit + 1 - len(found))
        sql = f'SELECT key, body, {order} FROM {names.table}{query.where} ORDER BY {ordering} LIMIT {limit}'
        found += yield Statement(sql, query.values)
        if len(found) > question.limit:
            break
    return found


def _parts(names: ColumnNames, question: Question) -> Iterator[tuple[_Query, str]]:
    """Yield where and in which order: by key, or what has no value in the order and what has one, as they follow."""
    after = question.after
    if question.order is None:
        yield _by_key(_filtered(names, question.conditions), question)
        return
    column = names.column(question.order.name)
    begins_with_nulls = not question.is_descending
    for has_nulls in (begins_with_nulls, not begins_with_nulls):
        is_here = after is not None and (after.cell is None) is has_nulls
        if after is not None and not is_here and has_nulls is begins_with_nulls:
            continue  # the page before ended behind it
        query = _filtered(names, question.conditions)
        if has_nulls:
            yield _of_nulls(query, column, after if is_here else None)
        else:
            yield _of_values(query, column, after if is_here else None, is_descending=question.is_descending)


def _by_key(query: _Query, question: Question) -> tuple[_Query, str]:
    if question.after is not None:
        query.tests.append(f'key {"<" if question.is_descending else ">"} {query.bind(question.after.key)}')
    return query, 'key DESC' if question.is_descending else 'key'


def _of_nulls(query: _Query, column: str, after: Position | None) -> tuple[_Query, str]:
    query.tests.append(f'{column} IS NULL')
    if after is not None:
        query.tests.append(f'key > {query.bind(after.key)}')
    return query, 'key'


def _of_values(query: _Query, column: str, after: Position | None, *, is_descending: bool) -> tuple[_Query, str]:
    query.tests.append(f'{column} IS NOT NULL')
    if after is not None:
        sign = '<' if is_descending else '>'
        cell, key = query.bind(after.cell), query.bind(after.key)
        query.tests.append(f'{column} {sign}= {cell} AND ({column} {sign} {cell} OR key > {key})')
    return query, f'{column}{" DESC" if is_descending else ""}, key'


def _filtered(names: ColumnNames, conditions: Sequence[Condition]) -> _Query:
    query = _Query([])
    for condition in conditions:
        query.tests.append(_test(names.column(condition.column.name), condition, query))
    return query


def _test(column: str, condition: Condition, query: _Query) -> str:
    if isinstance(condition, OneOf):
        tests = [f'{column} IN ({", ".join(map(query.bind, condition.values))})'] if condition.values else []
        tests += [f'{column} IS NULL'] if condition.or_null else []
        return f'({" OR ".join(tests) or "1 = 0"})'
    bounds = [f'{column} {sign} {query.bind(cell)}' for sign, cell in condition.bounds]
    return ' AND '.join([f'{column} IS NOT NULL', *bounds])
