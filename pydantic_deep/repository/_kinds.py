"""What can be compared: kinds of values, the types of fields that have them, and one form of each value.

Engines keep and compare `Cell`s alone: text by code points, 64-bit integers, finite floats. What is none is refused
before it reaches an engine, so that all of them refuse the same.
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
"""What an engine keeps of a value that is not null. Cells of one column have one type."""

_MAX_INTEGER: Final = 2**63 - 1
"""The largest that a `BIGINT` holds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Kind(StrEnum):
    """How values of a field are compared; released names are kept in databases."""

    TEXT = 'text'
    """By code points; the cell is the text."""
    UUID = 'uuid'
    """The cell is its canonical text."""
    INTEGER = 'integer'
    """64 bits."""
    REAL = 'real'
    """A finite float."""
    BOOLEAN = 'boolean'
    """The cell is 0 or 1."""
    MOMENT = 'moment'
    """A `datetime` with a time zone; the cell counts microseconds since 1970."""

    @property
    def cell_type(self) -> type[str] | type[int] | type[float]:
        """The type of its cells."""
        if self in (Kind.TEXT, Kind.UUID):
            return str
        return float if self is Kind.REAL else int


@dataclass(frozen=True, kw_only=True)
class Column:
    """A field that can be asked by."""

    name: str
    """That of the field."""
    kind: Kind
    """How its values are compared."""
    is_nullable: bool
    """Whether the model lets it be null."""


_KIND_BY_TYPE: Final[dict[type, Kind]] = {
    bool: Kind.BOOLEAN,  # before `int`, of which it is a subclass
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
"""Types of pydantic that are no subclasses of what their values are."""


def column_of(name: str, annotation: object) -> Column | None:
    """Return the column of a field of that type, or `None` if values of the type cannot be compared."""
    kinds = _kinds_in(annotation)
    (kind,) = (kinds - {'null'}) if len(kinds - {'null'}) == 1 else ('other',)
    if not isinstance(kind, Kind):
        return None
    return Column(name=name, kind=kind, is_nullable='null' in kinds)


def cell_of(kind: Kind, value: object) -> Cell:
    """Return what engines compare instead of a value.

    Raises:
        ValueError: The value is of another kind, or cannot be compared everywhere. The message is half a sentence.
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
            raise ValueError(f'it is compared with {_EXPECTED[kind]}, and {shown(value)} is none')


def is_cell(kind: Kind, cell: object) -> bool:
    """Return whether `cell_of` could have returned this."""
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
    """Return text that every engine keeps. Raises `ValueError`, with half a sentence, for any other."""
    if '\0' in text:
        raise ValueError(f'{shown(text)} has the character NUL in it, which not every engine keeps')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f'{shown(text)} has half a character in it (a lone surrogate)') from None
    return str(text)


def text_after(text: str) -> str | None:
    """Return the first text, by code points, that is after all that begin with this; `None` if there is none."""
    for index in reversed(range(len(text))):
        code = ord(text[index])
        if code < 0x10FFFF:
            following = 0xE000 if code == 0xD7FF else code + 1  # between them are the surrogates
            return text[:index] + chr(following)
    return None


def shown(value: object) -> str:
    """Return a value as messages of errors show it."""
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python writes
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


_Found: TypeAlias = Kind | Literal['null', 'other']


def _kinds_in(annotation: object) -> set[_Found]:
    origin = get_origin(annotation)
    if (aliased := cast('object', getattr(annotation, '__value__', None))) is not None:
        return _kinds_in(aliased)  # of a `TypeAliasType`: there are two classes of that name before Python 3.14
    if isinstance(annotation, NewType):
        return _kinds_in(cast('object', annotation.__supertype__))
    if origin is Annotated:
        return _kinds_in(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return _kinds_of_all(get_args(annotation))
    if origin is Literal:
        return _kinds_of_all([cast('object', type(value)) for value in get_args(annotation)])
    return {_kind_of_class(annotation)} if not _is_enum(annotation) else _kinds_of_members(annotation)


def _kinds_of_all(annotations: Collection[object]) -> set[_Found]:
    return {kind for each in annotations for kind in _kinds_in(each)}


def _is_enum(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Enum)


def _kinds_of_members(annotation: object) -> set[_Found]:
    return {_kind_of_class(type(cast('object', member.value))) for member in cast('type[Enum]', annotation)}


def _kind_of_class(annotation: object) -> _Found:
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
        raise ValueError(f'it is compared with a UUID, and {shown(value)} is none') from None


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
