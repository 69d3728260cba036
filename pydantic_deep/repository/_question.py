"""A query, validated and normalized for all engines. Pure."""

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
"""Maximum number of rows in a page, which takes about ten milliseconds to decode."""

MAX_VALUES: Final = 10_000
"""Maximum number of values in all conditions: SQLite takes 32,766 in a statement, and PostgreSQL 65,535."""

_MAX_CURSOR_CHARS: Final = 16_384
"""Maximum length of a cursor: key and value are at most 2,560 bytes of text, each of which may take six in JSON."""

Operator: TypeAlias = Literal['>=', '>', '<=', '<']


@dataclass(frozen=True)
class OneOf:
    """The field has one of these values."""

    column: Column
    """The field, which may be the key."""
    values: tuple[Cell, ...]
    """The values, sorted and without duplicates."""
    or_null: bool
    """Whether null also matches."""


@dataclass(frozen=True)
class Compared:
    """The field is not null, and all comparisons hold."""

    column: Column
    """The field, which may be the key."""
    bounds: tuple[tuple[Operator, Cell], ...]
    """Comparisons with the field on the left. If empty, every value but null matches."""


Condition: TypeAlias = OneOf | Compared


@dataclass(frozen=True)
class Position:
    """The position of a row in the order of a query."""

    cell: Cell | None
    """The value of the ordering field; `None` if it is null, or if the order is by key alone."""
    key: str
    """The key of the row."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """The validated arguments of `list`. All conditions must hold."""

    conditions: tuple[Condition, ...]
    """The conditions on rows, sorted by field."""
    order: Column | None
    """The ordering field, with ties in ascending order of key; `None` for the order of keys alone."""
    is_descending: bool
    """Whether the field, or the key without one, is in descending order. Null is the smallest value."""
    limit: int
    """Maximum number of rows."""
    after: Position | None
    """The last row of the previous page."""
    digest: str
    """Digest of everything but the limit and the position."""

    def cursor(self, last: Position) -> str:
        """Return the cursor of the page after this row."""
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
    """Validate the arguments of `list`.

    Args:
        model: The name of the model, for errors.
        columns: All filterable fields, including the key.
        key: The key.
        where: As for `list`, like the other arguments.
        order_by: The ordering field.
        limit: From 1 to `MAX_LIMIT`.
        cursor: The cursor of the previous page.

    Raises:
        UnknownFieldError: A field is not among the columns.
        InvalidQuestionError: A condition does not fit its field, or the limit is out of bounds.
        InvalidCursorError: The cursor is malformed, or belongs to another query.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:  # pyright: ignore[reportUnnecessaryIsInstance] - of callers without types
        raise InvalidQuestionError(model, 'limit', f'it is a number from 1 to {MAX_LIMIT:,}, not {shown(limit)}')
    if not isinstance(cast('object', order_by), str | None):
        raise InvalidQuestionError(
            model, 'order_by', f"it is a field, such as 'name' or '-name', not {shown(order_by)}"
        )
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
    """Validate conditions. Raises `UnknownFieldError` and `InvalidQuestionError`."""
    if not isinstance(cast('object', where), Mapping | None):
        raise InvalidQuestionError(model, 'where', f"it is a mapping, such as {{'name': 'Ada'}}, not {shown(where)}")
    conditions: list[Condition] = []
    for name, wanted in (where or {}).items():
        column = columns.get(name)
        if column is None:
            raise UnknownFieldError(model, name, columns)
        try:
            conditions.append(_read_condition(column, wanted))
        except ValueError as error:
            raise InvalidQuestionError(model, name, str(error)) from None
    count = sum(
        len(condition.values) if isinstance(condition, OneOf) else len(condition.bounds) for condition in conditions
    )
    if count > MAX_VALUES:
        raise InvalidQuestionError(model, ', '.join(where or ()), f'{count:,} values are more than {MAX_VALUES:,}')
    return tuple(sorted(conditions, key=lambda condition: condition.column.name))


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
        raise ValueError('a bool has no range; use True or False')
    limits: tuple[tuple[Operator, object], ...] = (
        *(('>=', wanted.ge), ('>', wanted.gt)),
        *(('<=', wanted.le), ('<', wanted.lt)),
    )
    return [(operator, cell_of(column.kind, limit)) for operator, limit in limits if limit is not None]


def _read_prefix(column: Column, text: object) -> list[tuple[Operator, Cell]]:
    if column.kind not in (Kind.TEXT, Kind.UUID):
        raise ValueError('a prefix requires a text field')
    if not isinstance(text, str):
        raise ValueError(f'a prefix is text, not {shown(text)}')
    first = checked_text(text if column.kind is Kind.TEXT else text.lower())
    after = text_after(first)
    lowest: list[tuple[Operator, Cell]] = [('>=', first)] if first else []
    return lowest if after is None else [*lowest, ('<', after)]


def _digest(model: str, order: str, is_descending: bool, conditions: tuple[Condition, ...]) -> str:
    terms = [
        (condition.column.name, condition.values, condition.or_null)
        if isinstance(condition, OneOf)
        else (condition.column.name, condition.bounds)
        for condition in conditions
    ]
    text = json.dumps([model, order, is_descending, terms])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_cursor(cursor: str, digest: str, key: Column, order: Column | None) -> Position:
    """Decode a cursor. It marks a position and grants no access, so a forged cursor in the right form is harmless."""
    try:
        if not isinstance(cast('object', cursor), str) or len(cursor) > _MAX_CURSOR_CHARS:
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
