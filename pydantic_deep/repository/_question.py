"""A question to a repository, checked and brought to one form that all engines read. Nothing here waits or keeps rows."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from pydantic_core import from_json

from ._kinds import Cell, Column, Kind, cell_of, checked_text, is_cell, shown, text_after
from ._types import In, Prefix, Range, Where
from .errors import InvalidCursorError, InvalidQuestionError, UnknownFieldError

MAX_LIMIT: Final = 1000
"""Rows of a page: what is decoded in some ten milliseconds."""

MAX_VALUES: Final = 10_000
"""Values in all conditions of a question: SQLite takes 32,766 in a statement, and PostgreSQL 65,535."""

_MAX_CURSOR_CHARS: Final = 16_384
"""No cursor of ours is as long: a key and a value are at most 2,560 bytes of text, which JSON may write as six each."""

Operator: TypeAlias = Literal['>=', '>', '<=', '<']


@dataclass(frozen=True)
class OneOf:
    """The field has one of these values."""

    column: Column
    """The field; it may be the key."""
    values: tuple[Cell, ...]
    """In order, each once."""
    or_null: bool
    """Whether it may be null too."""


@dataclass(frozen=True)
class Compared:
    """The field is not null, and compares with all of these as said."""

    column: Column
    """The field; it may be the key."""
    bounds: tuple[tuple[Operator, Cell], ...]
    """It is on the left of the operator. If there are none it is only not null."""


Condition: TypeAlias = OneOf | Compared


@dataclass(frozen=True)
class Position:
    """Where a row stands in the order of a question."""

    cell: Cell | None
    """Its value of the field that is ordered by; `None` if null, or if keys alone are."""
    key: str
    """Its key."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What `list` was asked. All conditions must hold."""

    conditions: tuple[Condition, ...]
    """Which rows."""
    order: Column | None
    """The field that is ordered by, and then, ascending, by key; `None` if by key alone."""
    is_descending: bool
    """Whether the field, or the key if there is none, descends. Null is the smallest value."""
    limit: int
    """At most how many rows."""
    after: Position | None
    """The last row of the page before."""
    digest: str
    """Of everything but the limit and the position."""

    def cursor(self, last: Position) -> str:
        """Return the cursor of the page after that row."""
        text = json.dumps([self.digest, last.cell, last.key])
        return base64.urlsafe_b64encode(text.encode()).rstrip(b'=').decode()


def read_question(
    model: str,
    columns: Mapping[str, Column],
    key: Column,
    where: Where | None,
    *,
    order_by: str | None,
    limit: int,
    cursor: str | None,
) -> Question:
    """Check a question.

    Args:
        model: The name of the model, for errors.
        columns: All fields that can be asked by, and the key.
        key: The key.
        where: As `list` takes it; so are the others.
        order_by: A field.
        limit: From 1 to `MAX_LIMIT`.
        cursor: That of the page before.

    Raises:
        UnknownFieldError: A field is not among the columns.
        InvalidQuestionError: A condition does not fit its field, or the limit is out of bounds.
        InvalidCursorError: The cursor is none of ours, or of another question.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:  # pyright: ignore[reportUnnecessaryIsInstance] - of callers without types
        raise InvalidQuestionError(model, 'limit', f'it is a number from 1 to {MAX_LIMIT:,}, not {shown(limit)}')
    conditions = read_conditions(model, columns, where)
    name = order_by.removeprefix('-') if order_by is not None else key.name
    if name not in columns:
        raise UnknownFieldError(model, name, columns)
    is_descending = order_by is not None and order_by.startswith('-')
    order = None if name == key.name else columns[name]
    digest = _digest(model, name, is_descending, conditions)
    after = None if cursor is None else _read_cursor(cursor, digest, key, order)
    return Question(
        conditions=conditions, order=order, is_descending=is_descending, limit=limit, after=after, digest=digest
    )


def read_conditions(model: str, columns: Mapping[str, Column], where: Where | None) -> tuple[Condition, ...]:
    """Check conditions. Raises `UnknownFieldError` and `InvalidQuestionError`."""
    conditions: list[Condition] = []
    for name, wanted in (where or {}).items():
        column = columns.get(name)
        if column is None:
            raise UnknownFieldError(model, name, columns)
        try:
            conditions.append(_read_condition(column, wanted))
        except ValueError as error:
            raise InvalidQuestionError(model, name, str(error)) from None
    count = sum(len(each.values) if isinstance(each, OneOf) else len(each.bounds) for each in conditions)
    if count > MAX_VALUES:
        raise InvalidQuestionError(model, ', '.join(where or ()), f'{count:,} values are more than {MAX_VALUES:,}')
    return tuple(sorted(conditions, key=lambda each: each.column.name))


def _read_condition(column: Column, wanted: object) -> Condition:
    if isinstance(wanted, In):
        if isinstance(wanted.values, str):
            raise ValueError(f'`In` takes several values: write `In([{shown(wanted.values)}])`')
        cells = {cell_of(column.kind, value) for value in wanted.values if value is not None}
        return OneOf(column, tuple(sorted(cells)), None in wanted.values)
    if isinstance(wanted, Range):
        return Compared(column, tuple(_read_range(column, wanted)))
    if isinstance(wanted, Prefix):
        return Compared(column, tuple(_read_prefix(column, wanted.text)))
    if wanted is None:
        return OneOf(column, (), or_null=True)
    return OneOf(column, (cell_of(column.kind, wanted),), or_null=False)


def _read_range(column: Column, wanted: Range) -> list[tuple[Operator, Cell]]:
    if column.kind is Kind.BOOLEAN:
        raise ValueError('a bool has no range; ask for True or False')
    limits: tuple[tuple[Operator, object], ...] = (
        *(('>=', wanted.ge), ('>', wanted.gt)),
        *(('<=', wanted.le), ('<', wanted.lt)),
    )
    return [(operator, cell_of(column.kind, limit)) for operator, limit in limits if limit is not None]


def _read_prefix(column: Column, text: object) -> list[tuple[Operator, Cell]]:
    if column.kind not in (Kind.TEXT, Kind.UUID):
        raise ValueError('a prefix is for text')
    if not isinstance(text, str):
        raise ValueError(f'a prefix is text, not {shown(text)}')
    first = checked_text(text if column.kind is Kind.TEXT else text.lower())
    after = text_after(first)
    lowest: list[tuple[Operator, Cell]] = [('>=', first)] if first else []
    return lowest if after is None else [*lowest, ('<', after)]


def _digest(model: str, order: str, is_descending: bool, conditions: tuple[Condition, ...]) -> str:
    asked = [
        (each.column.name, each.values, each.or_null) if isinstance(each, OneOf) else (each.column.name, each.bounds)
        for each in conditions
    ]
    text = json.dumps([model, order, is_descending, asked])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_cursor(cursor: str, digest: str, key: Column, order: Column | None) -> Position:
    """Read a cursor. It says where to go on and grants nothing, so one that somebody makes up in our form is as good."""
    try:
        if len(cursor) > _MAX_CURSOR_CHARS:
            raise ValueError
        parts = cast('object', from_json(base64.b64decode(cursor + '=' * (-len(cursor) % 4), b'-_', validate=True)))
        if not isinstance(parts, list):
            raise ValueError
        of, cell, last = cast('list[object]', parts)
    except (ValueError, binascii.Error):
        raise InvalidCursorError(cursor) from None
    fits = cell is None or (order is not None and is_cell(order.kind, cell))
    if of != digest or not fits or not is_cell(key.kind, last):
        raise InvalidCursorError(cursor)
    return Position(cast('Cell | None', cell), cast('str', last))
