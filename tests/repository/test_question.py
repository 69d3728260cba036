"""Normalized queries, and forged cursors."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.repository import In, InvalidCursorError, InvalidQuestionError, Prefix, Range, Where
from pydantic_deep.repository._model import RowModel
from pydantic_deep.repository._question import Compared, OneOf, Position
from pydantic_deep.repository.conformance import FIELDS, Sample

MODEL = RowModel(Sample, key='id', fields=FIELDS)


def as_cursor(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip('=')


@pytest.mark.parametrize(
    ('where', 'expected'),
    [
        ({'count': In([3, None, 1, 3])}, ((1, 3), True)),
        ({'count': None}, ((), True)),
        ({'name': Prefix('ab')}, (('>=', 'ab'), ('<', 'ac'))),
        ({'name': Prefix('')}, ()),
        ({'name': Prefix('\U0010ffff')}, (('>=', '\U0010ffff'),)),
        ({'made_at': Range(ge=datetime(1970, 1, 1, tzinfo=UTC))}, (('>=', 0),)),
    ],
)
def test_conditions_are_normalized_to_two_forms(where: Where, expected: object) -> None:
    (condition,) = MODEL.conditions(where)
    match condition:
        case OneOf(_, values, or_null):
            assert (values, or_null) == expected
        case Compared(_, bounds):
            assert bounds == expected


def test_prefix_must_be_text() -> None:
    with pytest.raises(InvalidQuestionError, match='a prefix is text, not 5'):
        MODEL.conditions({'name': Prefix(5)})  # pyright: ignore[reportArgumentType] - that is the point


@pytest.mark.parametrize('wrong', ['name = 5', [('name', 'a')], len, 5])
def test_arguments_of_other_types_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidQuestionError, match="an invalid 'where': it is a mapping, such as"):
        MODEL.question(wrong)
    if not isinstance(wrong, str):
        with pytest.raises(InvalidQuestionError, match="an invalid 'order_by': it is a field, such as"):
            MODEL.question(None, order_by=wrong)
        with pytest.raises(InvalidCursorError, match='is not a cursor of this query'):
            MODEL.question(None, cursor=wrong)


def test_equal_queries_have_equal_digests() -> None:
    one = MODEL.question({'count': In([1, 2]), 'name': 'a'}, order_by='weight')
    other = MODEL.question({'name': In(['a', 'a']), 'count': In([2, 1])}, order_by='weight')
    assert one.digest == other.digest


def test_limit_on_values_applies_to_all_conditions_together() -> None:
    numbers = list(range(5_001))
    with pytest.raises(InvalidQuestionError, match='10,002 values are more than 10,000'):
        MODEL.conditions({'count': In(numbers), 'weight': In(numbers)})


@given(st.none() | st.text(), st.text(min_size=1))
def test_cursor_round_trips(cell: str | None, key: str) -> None:
    position = Position(cell and cell.replace('\0', ''), key.replace('\0', 'x'))
    cursor = MODEL.question(None, order_by='-name').cursor(position)
    assert cursor.isascii()
    assert MODEL.question(None, order_by='-name', cursor=cursor).after == position


@given(st.text() | st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_text_that_is_not_a_cursor_is_refused(text: str) -> None:
    """004-04: any text is refused as an invalid cursor, with no other error."""
    with pytest.raises(InvalidCursorError) as caught:
        MODEL.question(None, cursor=text)
    assert caught.value.cursor == text


@pytest.mark.parametrize(
    ('order', 'cell', 'key'),
    [
        (None, 'a', 'a'),
        ('id', 'a', 'a'),
        ('count', '1', 'a'),
        ('count', 1.0, 'a'),
        ('count', True, 'a'),
        ('count', 2**63, 'a'),
        ('count', [1], 'a'),
        ('count', {'a': 1}, 'a'),
        ('weight', 1, 'a'),
        ('weight', float('nan'), 'a'),
        ('weight', float('inf'), 'a'),
        ('name', 1, 'a'),
        ('name', 'a\0', 'a'),
        ('name', '\ud800', 'a'),
        ('owner', 'no uuid', 'a'),
        ('made_at', '2026-01-01', 'a'),
        ('name', 'a', 5),
        ('name', 'a', None),
        ('name', 'a', 'a\0'),
        ('name', 'a', ['a']),
    ],
)
def test_forged_position_is_refused(order: str | None, cell: object, key: object) -> None:
    digest = MODEL.question(None, order_by=order).digest
    with pytest.raises(InvalidCursorError):
        MODEL.question(None, order_by=order, cursor=as_cursor([digest, cell, key]))


@pytest.mark.parametrize('value', [None, {}, [], 'x', 5, [1, 2], [1, 2, 3, 4], [None, None, 'a']])
def test_json_that_is_not_a_cursor_is_refused(value: object) -> None:
    with pytest.raises(InvalidCursorError):
        MODEL.question(None, cursor=as_cursor(value))


def test_deeply_nested_json_is_refused() -> None:
    with pytest.raises(InvalidCursorError):
        MODEL.question(None, cursor=base64.urlsafe_b64encode(b'[' * 12_000).decode())


def test_forged_cursor_text_is_treated_as_data() -> None:
    text = "x' OR 1=1; DROP TABLE rows_sample; --"
    digest = MODEL.question(None, order_by='name').digest
    after = MODEL.question(None, order_by='name', cursor=as_cursor([digest, text, text])).after
    assert after == Position(text, text)
