"""Comparable values: their kinds, the field types that have them, and the normalized form of each value.

Engines store and compare only `Cell`s: text by code points, 64-bit integers and finite floats. Other values are refused
before they reach an engine, so that all engines refuse the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from types import NoneType, UnionType
from typing import Annotated, Final, Literal, NewType, TypeAlias, Union, cast, get_args, get_origin
from uuid import UUID

import pydantic

Cell: TypeAlias = str | int | float
"""The stored form of a value that is not null. Cells of one column have one type."""

_MAX_INTEGER: Final = 2**63 - 1
"""The largest value of a `BIGINT`."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Kind(StrEnum):
    """How the values of a field are compared. Released names are stored in databases."""

    TEXT = 'text'
    """Text, compared by code points; the cell is the text."""
    UUID = 'uuid'
    """A UUID; the cell is its canonical text."""
    INTEGER = 'integer'
    """An integer of at most 64 bits; the cell is the integer."""
    REAL = 'real'
    """A finite number; the cell is a float."""
    BOOLEAN = 'boolean'
    """A bool; the cell is 0 or 1."""
    MOMENT = 'moment'
    """A `datetime` with a time zone; the cell counts microseconds since 1970."""

    @property
    def cell_type(self) -> type[str] | type[int] | type[float]:
        """The Python type of cells of this kind."""
        if self in (Kind.TEXT, Kind.UUID):
            return str
        return float if self is Kind.REAL else int


@dataclass(frozen=True, kw_only=True)
class Column:
    """A filterable field."""

    name: str
    """The name of the field."""
    kind: Kind
    """The kind of its values."""
    is_nullable: bool
    """Whether the model allows null."""


_KIND_BY_TYPE: Final[dict[type, Kind]] = {
    bool: Kind.BOOLEAN,  # before its superclass `int`
    str: Kind.TEXT,
    int: Kind.INTEGER,
    float: Kind.REAL,
    datetime: Kind.MOMENT,
    UUID: Kind.UUID,
}
_KIND_BY_MARKER: Final[dict[object, Kind]] = {
    pydantic.AwareDatetime: Kind.MOMENT,
    pydantic.PastDatetime: Kind.MOMENT,
    pydantic.FutureDatetime: Kind.MOMENT,
    pydantic.EmailStr: Kind.TEXT,
}
"""Types of pydantic that are not subclasses of the types of their values."""


def column_of(name: str, annotation: object) -> Column | None:
    """Return the column of a field with this type; `None` if its values cannot be compared."""
    kinds = _kinds_in(annotation)
    (kind,) = (kinds - {'null'}) if len(kinds - {'null'}) == 1 else ('other',)
    if not isinstance(kind, Kind):
        return None
    return Column(name=name, kind=kind, is_nullable='null' in kinds)


def cell_of(kind: Kind, value: object) -> Cell:
    """Return the cell that engines compare instead of a value.

    Raises:
        ValueError: The value is of another kind, or not every engine can compare it. The message is a clause.
    """
    if isinstance(value, Enum):
        value = cast('object', value.value)
    match kind:
        case Kind.TEXT if isinstance(value, str):
            return checked_text(value)
        case Kind.UUID if isinstance(value, UUID | str):
            return _uuid_cell(value)
        case Kind.BOOLEAN if isinstance(value, bool):
            return int(value)
        case Kind.INTEGER if isinstance(value, int) and not isinstance(value, bool):
            return _integer_cell(value)
        case Kind.REAL if isinstance(value, int | float) and not isinstance(value, bool):
            return _real_cell(value)
        case Kind.MOMENT if isinstance(value, datetime):
            return _moment_cell(value)
        case _:
            raise ValueError(f'it is compared with {_EXPECTED[kind]}, and {shown(value)} is not one')


def is_cell(kind: Kind, cell: object) -> bool:
    """Return whether `cell_of` can return this cell."""
    if type(cell) is not kind.cell_type:
        return False
    try:
        if isinstance(cell, str):
            return cell_of(kind, cell) == cell
        _real_cell(cell) if isinstance(cell, float) else _integer_cell(cell)
    except ValueError:
        return False
    return True


def checked_text(text: str) -> str:
    """Return text that every engine can store. Raises `ValueError`, with a clause as message, for any other."""
    if '\0' in text:
        raise ValueError(f'{shown(text)} contains NUL, which not every engine can store')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f'{shown(text)} contains half a character (a lone surrogate)') from None
    return str(text)


def text_after(text: str) -> str | None:
    """Return the first text, by code points, after all texts with this prefix; `None` if there is none."""
    for index in reversed(range(len(text))):
        code = ord(text[index])
        if code < 0x10FFFF:
            following = 0xE000 if code == 0xD7FF else code + 1  # the surrogates are between them
            return text[:index] + chr(following)
    return None


def shown(value: object) -> str:
    """Return a value as error messages show it, shortened."""
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python converts
        return f'a {type(value).__name__} of many digits'
    return text if len(text) <= 80 else f'{text[:77]}...'


_EXPECTED: Final = {
    Kind.TEXT: 'text',
    Kind.UUID: 'a UUID',
    Kind.INTEGER: 'an integer',
    Kind.REAL: 'a number',
    Kind.BOOLEAN: 'a bool',
    Kind.MOMENT: 'a datetime',
}


_FieldKind: TypeAlias = Kind | Literal['null', 'other']


def _kinds_in(annotation: object) -> set[_FieldKind]:
    origin = get_origin(annotation)
    if (aliased := cast('object', getattr(annotation, '__value__', None))) is not None:
        return _kinds_in(aliased)  # a `TypeAliasType`, of which there are two classes before Python 3.14
    if isinstance(annotation, NewType):
        return _kinds_in(cast('object', annotation.__supertype__))
    if origin is Annotated:
        return _kinds_in(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return _kinds_of_all(get_args(annotation))
    if origin is Literal:
        return _kinds_of_all([cast('object', type(value)) for value in get_args(annotation)])
    return {_kind_of_class(annotation)} if not _is_enum(annotation) else _kinds_of_members(annotation)


def _kinds_of_all(annotations: Collection[object]) -> set[_FieldKind]:
    return {kind for member in annotations for kind in _kinds_in(member)}


def _is_enum(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Enum)


def _kinds_of_members(annotation: object) -> set[_FieldKind]:
    return {_kind_of_class(type(cast('object', member.value))) for member in cast('type[Enum]', annotation)}


def _kind_of_class(annotation: object) -> _FieldKind:
    if annotation in (None, NoneType):
        return 'null'
    if isinstance(annotation, type):
        if annotation in _KIND_BY_MARKER:
            return _KIND_BY_MARKER[annotation]
        for type_, kind in _KIND_BY_TYPE.items():
            if issubclass(annotation, type_):
                return kind
    return 'other'


def _uuid_cell(value: UUID | str) -> str:
    try:
        return str(value if isinstance(value, UUID) else UUID(value))
    except ValueError:
        raise ValueError(f'it is compared with a UUID, and {shown(value)} is not one') from None


def _integer_cell(value: int) -> int:
    if not -_MAX_INTEGER - 1 <= value <= _MAX_INTEGER:
        raise ValueError(f'{shown(value)} does not fit into 64 bits')
    return int(value)


def _real_cell(value: float) -> float:
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    if not math.isfinite(real):
        raise ValueError(f'{shown(value)} is not a finite number')
    return real + 0.0  # SQLite has no -0.0


def _moment_cell(value: datetime) -> int:
    if value.tzinfo is None or value.utcoffset() is None:
        raise ValueError(f'{value.isoformat()!r} has no time zone')
    return (value - _EPOCH) // _MICROSECOND
