"""Comparable types, and conversion of their values to cells."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NewType, Optional, Union
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import UUID4, AwareDatetime, BaseModel, EmailStr, Field, NaiveDatetime, PositiveInt, SecretStr, StrictStr
from typing_extensions import TypeAliasType

from pydantic_deep.repository._kinds import Kind, cell_of, column_of, is_cell, text_after


class Plain(Enum):
    A = 'a'
    B = 'b'


class Level(IntEnum):
    LOW = 1


class Mixed(Enum):
    A = 'a'
    B = 2


class Word(StrEnum):
    A = 'a'


class Nothing(Enum):
    pass


UserId = NewType('UserId', str)
Alias = TypeAliasType('Alias', Annotated[int, Field(gt=0)] | None)


@pytest.mark.parametrize(
    ('annotation', 'kind', 'is_nullable'),
    [
        (str, Kind.TEXT, False),
        (int, Kind.INTEGER, False),
        (float, Kind.REAL, False),
        (bool, Kind.BOOLEAN, False),
        (datetime, Kind.MOMENT, False),
        (UUID, Kind.UUID, False),
        (Plain, Kind.TEXT, False),
        (Word, Kind.TEXT, False),
        (Level, Kind.INTEGER, False),
        (str | None, Kind.TEXT, True),
        (Optional[float], Kind.REAL, True),  # noqa: UP045 - it is another type than `float | None`
        (Union[Plain, Word, None], Kind.TEXT, True),  # noqa: UP007 - as above
        (Annotated[bool, 'x'], Kind.BOOLEAN, False),
        (Optional[Annotated[bool, 'x']], Kind.BOOLEAN, True),  # noqa: UP045 - `|` is not for `Annotated` to pyright
        (Literal['a', 'b'], Kind.TEXT, False),
        (Literal[1, None], Kind.INTEGER, True),
        (Literal[True], Kind.BOOLEAN, False),
        (UserId, Kind.TEXT, False),
        (Alias, Kind.INTEGER, True),
        (AwareDatetime, Kind.MOMENT, False),
        (EmailStr, Kind.TEXT, False),
        (StrictStr, Kind.TEXT, False),
        (PositiveInt, Kind.INTEGER, False),
        (UUID4, Kind.UUID, False),
    ],
    ids=str,
)
def test_comparable_types_have_a_column_kind(annotation: object, kind: Kind, is_nullable: bool) -> None:
    column = column_of('x', annotation)
    assert column is not None
    assert (column.name, column.kind, column.is_nullable) == ('x', kind, is_nullable)


@pytest.mark.parametrize(
    'annotation',
    [
        *(object, Any, None, type(None), list[str], dict[str, str], tuple[int, int], bytes, date, Decimal),
        *(NaiveDatetime, SecretStr, BaseModel, Mixed, Nothing, int | str, int | float, bool | int | None),
        *(Literal['a', 1], 'str', list[str] | None),
    ],
    ids=str,
)
def test_other_types_have_no_column(annotation: object) -> None:
    assert column_of('x', annotation) is None


@pytest.mark.parametrize(
    ('kind', 'value', 'cell'),
    [
        (Kind.TEXT, Plain.B, 'b'),
        (Kind.INTEGER, Level.LOW, 1),
        (Kind.BOOLEAN, True, 1),
        (Kind.REAL, 2, 2.0),
        (Kind.REAL, -0.0, 0.0),
        (Kind.UUID, '{00000000-0000-0000-0000-00000000000A}', '00000000-0000-0000-0000-00000000000a'),
        (Kind.MOMENT, datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (Kind.MOMENT, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
    ],
)
def test_values_are_converted_to_cells(kind: Kind, value: object, cell: object) -> None:
    found = cell_of(kind, value)
    assert (type(found), str(found)) == (type(cell), str(cell))
    assert is_cell(kind, found)


@pytest.mark.parametrize(
    ('kind', 'value', 'reason'),
    [
        (Kind.TEXT, None, 'compared with text, and None is not one'),
        (Kind.TEXT, b'a', 'compared with text'),
        (Kind.TEXT, 'a\0', 'NUL'),
        (Kind.TEXT, '\ud800', 'half a character'),
        (Kind.TEXT, Level.LOW, 'compared with text'),
        (Kind.INTEGER, 2**63, '64 bits'),
        (Kind.INTEGER, 10**5000, 'a int of many digits does not fit into 64 bits'),
        (Kind.REAL, float('nan'), 'nan is not a finite number'),
        (Kind.REAL, 10**400, '100000.*is not a finite number'),
        (Kind.MOMENT, datetime(2026, 1, 1), 'no time zone'),
        (Kind.MOMENT, date(2026, 1, 1), 'compared with a datetime'),
    ],
    ids=lambda part: type(part).__name__,
)
def test_invalid_cell_values_are_refused_with_a_reason(kind: Kind, value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        cell_of(kind, value)


@pytest.mark.parametrize(
    ('kind', 'cell'),
    [
        *((Kind.TEXT, 1), (Kind.TEXT, 'a\0'), (Kind.UUID, 'no'), (Kind.UUID, str(UUID(int=10)).upper())),
        *((Kind.INTEGER, True), (Kind.INTEGER, 1.0), (Kind.INTEGER, 2**63), (Kind.REAL, 1), (Kind.REAL, float('inf'))),
        *((Kind.MOMENT, '2026'), (Kind.BOOLEAN, True)),
    ],
)
def test_invalid_cells_are_rejected(kind: Kind, cell: object) -> None:
    assert not is_cell(kind, cell)


@given(st.text(), st.text())
def test_text_with_a_prefix_sorts_before_text_after_the_prefix(text: str, more: str) -> None:
    after = text_after(text)
    if after is not None:
        assert text <= text + more < after
        after.encode()


@pytest.mark.parametrize(
    ('text', 'after'),
    [('', None), ('a', 'b'), ('az', 'a{'), ('\ud7ff', '\ue000'), ('a\U0010ffff', 'b'), ('\U0010ffff', None)],
)
def test_text_after_returns_the_end_of_the_prefix_range(text: str, after: str | None) -> None:
    assert text_after(text) == after


@given(st.datetimes(timezones=st.timezones()), st.datetimes(timezones=st.timezones()))
def test_datetimes_are_ordered_like_their_cells(one: datetime, other: datetime) -> None:
    try:
        instants = one.astimezone(UTC), other.astimezone(UTC)
    except OverflowError:  # it is before the year 1 there
        return
    cells = [cell_of(Kind.MOMENT, moment) for moment in instants]
    assert cells == [cell_of(Kind.MOMENT, moment) for moment in (one, other)]
    assert (cells[0] < cells[1]) == (instants[0] < instants[1])  # pyright: ignore[reportOperatorIssue] - both count
