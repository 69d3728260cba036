"""Queries as Iceberg expressions, which select files by their statistics, and rows by an Arrow filter.

Cells have the types of Iceberg literals: text, 64-bit integers (including microseconds since 1970) and floats.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final, cast

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import Literal, literal

from ._kinds import Cell, Column, Kind
from ._question import Condition, OneOf, Operator, Question

_COMPARISONS: Final[dict[Operator, type[GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual]]] = {
    '>': GreaterThan,
    '>=': GreaterThanOrEqual,
    '<': LessThan,
    '<=': LessThanOrEqual,
}


def stored_cell(kind: Kind, cell: Cell) -> Cell:
    """Return the value that Iceberg stores for a cell."""
    return bool(cell) if kind is Kind.BOOLEAN else cell


def with_keys(key: Column, keys: Iterable[str]) -> BooleanExpression:
    """Return an expression that matches the rows with these keys."""
    return _one_of(key, keys)


def matching(conditions: Iterable[Condition]) -> BooleanExpression:
    """Return an expression that matches the rows that meet all conditions."""
    return _all_of(map(_condition, conditions))


def page_of(question: Question, key: Column) -> BooleanExpression:
    """Return an expression that matches the rows of a query after the previous page."""
    return _all_of([matching(question.conditions), _after(question, key)])


def _condition(condition: Condition) -> BooleanExpression:
    column = condition.column
    if isinstance(condition, OneOf):
        matches = _one_of(column, condition.values)
        return _either(matches, _is_null(column)) if condition.or_null else matches
    bounds = (_compared(column, operator, cell) for operator, cell in condition.bounds)
    return _all_of([NotNull(term=Reference(column.name)), *bounds])


def _after(question: Question, key: Column) -> BooleanExpression:
    if question.after is None:
        return AlwaysTrue()
    cell, last = question.after.cell, question.after.key
    operator: Operator = '<' if question.is_descending else '>'
    if question.order is None:
        return _compared(key, operator, last)
    column = question.order
    tie = _is_null(column) if cell is None else _one_of(column, [cell])
    rest = _all_of([tie, _compared(key, '>', last)])
    if cell is None:
        return rest if question.is_descending else _either(rest, NotNull(term=Reference(column.name)))
    rest = _either(rest, _compared(column, operator, cell))
    return _either(rest, _is_null(column)) if question.is_descending else rest


def _compared(column: Column, operator: Operator, cell: Cell) -> BooleanExpression:
    return _COMPARISONS[operator](term=Reference(column.name), value=_literal(column, cell))


def _is_null(column: Column) -> BooleanExpression:
    return IsNull(term=Reference(column.name))


def _one_of(column: Column, cells: Iterable[Cell]) -> BooleanExpression:
    """Return an expression that matches these cells. Zero is compared separately, as Arrow's `isin` misses negative
    zeros.

    `isin([0.0, 3.0])` should match all zeros. In a file where all values are zero, for which the statistics say -0.0 as
    in Parquet, it matches none: Arrow looks up -0.0 by its bits.
    """
    rest = list(cells)
    if column.kind is not Kind.REAL or 0.0 not in rest:
        return In(term=Reference(column.name), values={_literal(column, cell) for cell in rest})
    zero = EqualTo(term=Reference(column.name), value=_literal(column, 0.0))
    return _either(zero, In(term=Reference(column.name), values={_literal(column, cell) for cell in rest if cell}))


def _literal(column: Column, cell: Cell) -> Literal[str]:
    """Return a literal of any cell; `literal` has no type for a union."""
    return literal(cast('str', stored_cell(column.kind, cell)))


def _either(one: BooleanExpression, other: BooleanExpression) -> BooleanExpression:
    return Or(one, other)


def _all_of(expressions: Iterable[BooleanExpression]) -> BooleanExpression:
    return reduce(lambda one, other: And(one, other), expressions, AlwaysTrue())
