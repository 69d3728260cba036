"""Rules about fields and conditions."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Final, cast

import pytest
from pydantic import BaseModel, create_model

from pydantic_deep.repository._protocol import Repository
from pydantic_deep.repository._types import In, Page, Prefix, Range, Where
from pydantic_deep.repository.errors import InvalidFieldError, InvalidQuestionError, UnknownFieldError

from ._base import NOON, ODD_TEXTS, ONE, OpenRepository, RepositoryRules, Sample, Shade, keys

_QUESTIONS: Final[Sequence[tuple[Where, str]]] = (
    ({}, 'abcde'),
    ({'id': 'b'}, 'b'),
    ({'id': In(['e', 'a', 'z'])}, 'ae'),
    ({'id': Range(gt='b')}, 'cde'),
    ({'name': 'alpha'}, 'a'),
    ({'name': ''}, 'e'),
    ({'name': None}, 'c'),
    ({'name': In([None, 'Alpha'])}, 'bc'),
    ({'name': In([])}, ''),
    ({'name': Prefix('alpha')}, 'ad'),
    ({'name': Prefix('')}, 'abde'),
    ({'name': Range()}, 'abde'),
    ({'name': Range(ge='alpha', lt='alphabet')}, 'a'),
    ({'count': 2}, 'bc'),
    ({'count': None}, 'd'),
    ({'count': In([1, 1, -3])}, 'ae'),
    ({'count': Range(gt=-3, le=2)}, 'abc'),
    ({'count': Range(ge=1, gt=1)}, 'bc'),
    ({'count': Range(lt=2)}, 'ae'),
    ({'weight': 2}, 'cd'),
    ({'weight': Range(ge=0.5, lt=1e300)}, 'acd'),
    ({'is_done': True}, 'bd'),
    ({'is_done': False}, 'ace'),
    ({'is_done': In([True, False])}, 'abcde'),
    ({'is_done': None}, ''),
    ({'made_at': NOON}, 'a'),
    ({'made_at': NOON.astimezone(timezone(timedelta(hours=5)))}, 'a'),
    ({'made_at': Range(gt=NOON)}, 'b'),
    ({'made_at': Range(le=NOON)}, 'ad'),
    ({'owner': str(ONE)}, 'a'),
    ({'owner': str(ONE).replace('-', '').upper()}, 'a'),
    ({'owner': Prefix('00000000-')}, 'ac'),
    ({'shade': Shade.DARK}, 'ce'),
    ({'shade': 'dark'}, 'ce'),
    ({'shade': 'no such shade'}, ''),
    ({'count': 2, 'is_done': True}, 'b'),
    ({'name': None, 'count': None}, ''),
)
"""Conditions, and the keys of the rows of `SAMPLES` that match."""


_MISFITS: Final[Sequence[Mapping[str, object]]] = (
    {'name': 1},
    {'name': True},
    {'name': 'a\0b'},
    {'name': '\ud800'},
    {'name': Prefix('\ud800')},
    {'name': In('text')},
    {'name': ['a list']},
    {'count': '1'},
    {'count': 1.0},
    {'count': True},
    {'count': 2**63},
    {'count': Prefix('1')},
    {'weight': '1'},
    {'weight': math.nan},
    {'weight': Range(lt=math.inf)},
    {'weight': 10**400},
    {'is_done': 1},
    {'is_done': Range(ge=0)},
    {'made_at': '2026-11-22'},
    {'made_at': datetime(2026, 11, 22)},
    {'owner': 'no uuid'},
    {'shade': 5},
    {'name': In(list(map(str, range(10_001))))},
)
"""Conditions that do not fit their field."""


_NO_FIELDS: Final = (
    '', '-', '--name', ' name', 'NAME', 'name DESC', 'name; DROP TABLE rows_sample; --', '"name"', 'name, count',
    '(SELECT 1)', '1', 'notes', 'body', 'key', '*', 'naïve', 'a\0b', '\ud800',
)  # fmt: skip


class QuestionRules(RepositoryRules):
    """Rules about fields and conditions."""

    @pytest.mark.parametrize('names', [('none',), ('notes',), ('id; DROP TABLE x',), 'name'])
    async def test_unqueryable_fields_are_refused(
        self, open_repository: OpenRepository, names: Collection[str]
    ) -> None:
        with pytest.raises(InvalidFieldError, match='Sample'):
            await open_repository(Sample, fields=names)

    @pytest.mark.parametrize('key', ['none', 'count', 'name', 'notes', ''])
    async def test_invalid_key_fields_are_refused(self, open_repository: OpenRepository, key: str) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            await open_repository(Sample, key=key)
        assert caught.value.field == key

    async def test_fields_can_have_any_name(self, open_repository: OpenRepository) -> None:
        """004-04: a field's name is never part of a query's text."""
        names = ('select', 'order', 'group', 'größe', 'Name', 'NAME', 'body', 'key', 'x' * 100)
        definitions: dict[str, Any] = {'table': str, **dict.fromkeys(names, (str | None, None))}
        model: type[BaseModel] = create_model('Odd', **definitions)
        rows = await open_repository(model, key='table', fields=names)
        for name in names:
            await rows.create(model.model_validate({'table': f'of {name}', name: 'it'}))
        for name in names:
            page = await rows.list({name: 'it'}, order_by=f'-{name}')
            assert [row.model_dump()['table'] for row in page.items] == [f'of {name}']

    async def test_queries_return_matching_rows(self, five: Repository[Sample]) -> None:
        """004-04: equality, null (`name=None` matches null), one of several values, range, prefix, and combinations."""
        for where, expected in _QUESTIONS:
            assert keys(await five.list(where)) == expected, where
            assert await five.count(where) == len(expected), where

    async def test_text_is_compared_as_a_value_and_not_as_a_pattern(self, five: Repository[Sample]) -> None:
        """004-04: injection strings have no effect as values."""
        for text in ODD_TEXTS:
            await five.upsert(Sample(id='odd', name=f'{text}.'))
            await five.upsert(Sample(id='other', name=f'.{text}'))
            for condition in (f'{text}.', In([f'{text}.']), Prefix(text), Range(ge=f'{text}.', le=f'{text}.')):
                assert [row.id for row in (await five.list({'name': condition})).items] == ['odd'], ascii(text)
            assert await five.count() == 7, ascii(text)

    async def test_unknown_fields_are_refused_in_queries(self, five: Repository[Sample]) -> None:
        """004-04: `where` and `order_by` never become part of a query's text."""
        for name in _NO_FIELDS:
            for call in (five.list(order_by=name), five.list({name: 'x'}), five.count({name: 'x'})):
                with pytest.raises(UnknownFieldError):
                    await call
            assert keys(await five.list()) == 'abcde', ascii(name)

    async def test_error_for_an_unknown_field_lists_the_known_ones(self, five: Repository[Sample]) -> None:
        with pytest.raises(UnknownFieldError, match='count, id, is_done, made_at, name, owner, shade, weight'):
            await five.list({'notes': 'x'})

    async def test_mismatched_condition_is_refused_with_its_field(self, five: Repository[Sample]) -> None:
        for where in cast('Sequence[Where]', _MISFITS):
            for call in (five.list(where), five.count(where)):
                with pytest.raises(InvalidQuestionError) as caught:
                    await call
                assert [caught.value.field] == list(where)

    async def test_condition_can_have_many_values(self, five: Repository[Sample]) -> None:
        values = [f'no {number}' for number in range(9_999)]
        assert keys(await five.list({'name': In([*values, 'alpha'])})) == 'a'

    @pytest.mark.parametrize('limit', [0, -1, 1001, 10**5000], ids=['0', '-1', '1001', 'many digits'])
    async def test_limit_is_bounded(self, rows: Repository[Sample], limit: int) -> None:
        with pytest.raises(InvalidQuestionError, match='1,000') as caught:
            await rows.list(limit=limit)
        assert caught.value.field == 'limit'

    async def test_empty_repository_returns_no_rows(self, rows: Repository[Sample]) -> None:
        assert await rows.list() == Page(items=[], cursor=None)
        assert await rows.count() == 0
