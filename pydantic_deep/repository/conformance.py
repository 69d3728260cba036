"""The promises of `Repository` as tests, for everyone who writes one. Needs pytest and the pytest plugin of anyio.

Subclass `RepositorySuite` in a test module and provide a fixture `open_repository`: it opens a repository of any model
on one place, fresh for each test, again each time that it is called. What it opened the fixture closes.

```text
class TestMyRepository(RepositorySuite):
    @pytest.fixture
    async def open_repository(self, tmp_path: Path) -> AsyncIterator[OpenRepository]:
        async with AsyncExitStack() as stack:
            async def open_one(model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Repository[T]:
                return await stack.enter_async_context(open_mine(tmp_path, model, key=key, fields=fields))
            yield open_one
```
One whose rows nobody else sees says so with `is_shared = False`, one that forgets when the last closes it with
`is_durable = False`. Transactions are tested where there are any, see `SupportsTransactions`.

One class and one long file on purpose: a subclass overrides a rule by its name, and a reader finds all rules here.
"""

# ruff: noqa: D102 - the name of a rule is the sentence that a docstring would say again

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, create_model

from ._model import MAX_KEY_BYTES, MAX_TEXT_BYTES
from ._protocol import Repository, SupportsTransactions
from ._types import Change, Create, Delete, In, Page, Prefix, Range, Upsert, Where
from .errors import (
    InvalidCursorError,
    InvalidFieldError,
    InvalidQuestionError,
    InvalidRowError,
    RepositoryClosedError,
    RowExistsError,
    RowNotFoundError,
    UnknownFieldError,
    UnreadableRowError,
)

__all__ = ('FIELDS', 'SAMPLES', 'OpenRepository', 'RepositorySuite', 'Sample', 'Shade')

T = TypeVar('T', bound=BaseModel)


class OpenRepository(Protocol):
    """Opens a repository, each time on the same place."""

    def __call__(self, model: type[T], *, key: str = 'id', fields: Collection[str] = ()) -> Awaitable[Repository[T]]:
        """Open one for rows of a model."""
        ...


class Shade(StrEnum):
    """Values of a field."""

    LIGHT = 'light'
    """One."""
    DARK = 'dark'
    """Another."""


class Sample(BaseModel):
    """A row with a field of each kind."""

    id: str
    """The key."""
    name: str | None = None
    """Text, or null."""
    count: int | None = None
    """An integer, or null."""
    weight: float = 0.0
    """A number."""
    is_done: bool = False
    """A bool."""
    made_at: datetime | None = None
    """A moment, or null."""
    owner: UUID | None = None
    """A UUID, or null."""
    shade: Shade = Shade.LIGHT
    """One of a few."""
    notes: list[str] = Field(default_factory=list[str])
    """What cannot be asked by."""


FIELDS: Final = ('name', 'count', 'weight', 'is_done', 'made_at', 'owner', 'shade')
"""Of `Sample`, those that can be asked by."""

ODD_TEXTS: Final = (
    ' ',
    "it's",
    "' OR '1'='1",
    "'; DROP TABLE rows_sample; --",
    '"; DROP TABLE rows_sample; --',
    '?1',
    '$1',
    '%',
    '_',
    '\\',
    '{}',
    'NULL',
    'null',
    'é',
    'e\u0301',
    '日本語',
    '🙂',
    '\u202e',
    'a\nb',
    '\x01',
    '\uffff',
)
"""Text that means something to somebody, and to a repository is text."""

_IMPOSSIBLE_KEYS: Final = ('', 'a\0b', '\ud800', 'x' * (MAX_KEY_BYTES + 1))

_NOON: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
_ONE, _TWO = UUID(int=1), UUID(int=2)

SAMPLES: Final = (
    Sample(id='a', name='alpha', count=1, weight=0.5, made_at=_NOON, owner=_ONE),
    Sample(id='b', name='Alpha', count=2, weight=-1.0, is_done=True, made_at=_NOON + timedelta(microseconds=1)),
    Sample(id='c', name=None, count=2, weight=2.0, shade=Shade.DARK, owner=_TWO),
    Sample(id='d', name='alphabet', count=None, weight=2.0, is_done=True, made_at=_NOON - timedelta(days=1)),
    Sample(id='e', name='', count=-3, weight=1e300, shade=Shade.DARK),
)
"""What the fixture `five` creates. A suite may override it, to create them faster."""

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
    ({'made_at': _NOON}, 'a'),
    ({'made_at': _NOON.astimezone(timezone(timedelta(hours=5)))}, 'a'),
    ({'made_at': Range(gt=_NOON)}, 'b'),
    ({'made_at': Range(le=_NOON)}, 'ad'),
    ({'owner': str(_ONE)}, 'a'),
    ({'owner': str(_ONE).replace('-', '').upper()}, 'a'),
    ({'owner': Prefix('00000000-')}, 'ac'),
    ({'shade': Shade.DARK}, 'ce'),
    ({'shade': 'dark'}, 'ce'),
    ({'shade': 'no such shade'}, ''),
    ({'count': 2, 'is_done': True}, 'b'),
    ({'name': None, 'count': None}, ''),
)
"""What is asked, and the keys of the rows of `SAMPLES` that answer."""

_ORDERS: Final = (
    (None, 'abcde'),
    ('id', 'abcde'),
    ('-id', 'edcba'),
    ('name', 'cebad'),
    ('-name', 'dabec'),
    ('count', 'deabc'),
    ('-count', 'bcaed'),
    ('weight', 'bacde'),
    ('-weight', 'ecdab'),
    ('is_done', 'acebd'),
    ('-is_done', 'bdace'),
    ('made_at', 'cedab'),
    ('-made_at', 'badce'),
    ('owner', 'bdeac'),
    ('-owner', 'cabde'),
    ('shade', 'ceabd'),
    ('-shade', 'abdce'),
)
"""An order, and the keys of `SAMPLES` in it: null is the smallest, and ties follow their keys."""

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

_REFUSED: Final[Sequence[Mapping[str, object]]] = (
    {'id': ''},
    {'id': 'a\0b'},
    {'id': '\ud800'},
    {'id': 'x' * (MAX_KEY_BYTES + 1)},
    {'name': 'a\0b'},
    {'name': 'a\udcff'},
    {'name': 'é' * (MAX_TEXT_BYTES // 2) + 'x'},
    {'count': 2**63},
    {'count': -(2**63) - 1},
    {'weight': math.nan},
    {'weight': math.inf},
    {'made_at': datetime(2026, 11, 22)},
    {'shade': 'no shade'},
    {'notes': ['\ud800']},
    {'notes': 5},
)
"""Values that make a row one that cannot be kept."""

_NO_CURSORS: Final = (
    '', ' ', 'x', '====', 'WyJ4Il0', 'bnVsbA', 'W10', 'é', '\0', '\ud800', "'; DROP TABLE rows_sample; --", '[' * 20_000,
)  # fmt: skip

_NO_FIELDS: Final = (
    '', '-', '--name', ' name', 'NAME', 'name DESC', 'name; DROP TABLE rows_sample; --', '"name"', 'name, count',
    '(SELECT 1)', '1', 'notes', 'body', 'key', '*', 'naïve', 'a\0b', '\ud800',
)  # fmt: skip

_TASKS: Final = 50


class RepositorySuite:
    """What holds for every repository."""

    pytestmark: ClassVar = [pytest.mark.anyio]

    is_shared: ClassVar[bool] = True
    """Whether those that are opened on one place see the rows of each other."""

    is_durable: ClassVar[bool] = True
    """Whether what was acknowledged is there after all have closed it."""

    @pytest.fixture
    async def rows(self, open_repository: OpenRepository) -> Repository[Sample]:
        """A repository without rows."""
        return await open_repository(Sample, fields=FIELDS)

    @pytest.fixture
    async def five(self, rows: Repository[Sample]) -> Repository[Sample]:
        """One with `SAMPLES`."""
        for row in SAMPLES:
            await rows.create(row)
        return rows

    # Rows

    async def test_what_is_created_is_read_back_as_it_was(self, five: Repository[Sample]) -> None:
        """004-04: create and get, for any model."""
        assert [await five.get(row.id) for row in SAMPLES] == list(SAMPLES)

    async def test_what_is_there_is_not_created_again(self, five: Repository[Sample]) -> None:
        with pytest.raises(RowExistsError, match='upsert') as caught:
            await five.create(Sample(id='a', name='other'))
        assert (caught.value.model, caught.value.key) == ('Sample', 'a')
        assert await five.get('a') == SAMPLES[0]

    async def test_what_is_not_there_is_not_found(self, five: Repository[Sample]) -> None:
        with pytest.raises(RowNotFoundError, match="'z'") as caught:
            await five.get('z')
        assert (caught.value.model, caught.value.key) == ('Sample', 'z')

    async def test_an_upsert_adds(self, rows: Repository[Sample]) -> None:
        await rows.upsert(SAMPLES[0])
        assert await rows.get('a') == SAMPLES[0]

    async def test_an_upsert_replaces_all_of_a_row(self, five: Repository[Sample]) -> None:
        """004-04: update, also of what rows are found by."""
        await five.upsert(Sample(id='a', count=9))
        assert await five.get('a') == Sample(id='a', count=9)
        assert await five.count() == 5
        assert _keys(await five.list({'name': 'alpha'})) == ''
        assert _keys(await five.list({'name': None})) == 'ac'
        assert _keys(await five.list({'count': 9})) == 'a'

    async def test_what_is_deleted_is_gone(self, five: Repository[Sample]) -> None:
        """004-04: delete says whether there was something."""
        assert await five.delete('b') is True
        assert await five.delete('b') is False
        assert _keys(await five.list()) == 'acde'
        with pytest.raises(RowNotFoundError):
            await five.get('b')

    async def test_what_is_deleted_can_be_created_again(self, five: Repository[Sample]) -> None:
        await five.delete('b')
        await five.create(Sample(id='b', name='new'))
        assert (await five.get('b')).name == 'new'

    async def test_what_is_returned_and_what_was_given_are_copies(self, rows: Repository[Sample]) -> None:
        given = Sample(id='a', notes=['one'])
        await rows.create(given)
        given.notes.append('two')
        returned = await rows.get('a')
        returned.notes.append('three')
        assert (await rows.get('a')).notes == ['one']

    async def test_any_text_is_a_key(self, five: Repository[Sample]) -> None:
        """004-04: strings that inject are inert as keys."""
        for text in ODD_TEXTS:
            row = Sample(id=text, name='odd')
            await five.create(row)
            assert await five.get(text) == row
            assert [found.id for found in (await five.list({'id': text})).items] == [text]
            assert await five.delete(text) is True
            assert _keys(await five.list()) == 'abcde', ascii(text)

    async def test_a_key_that_no_row_can_have_is_not_found(self, five: Repository[Sample]) -> None:
        for key in _IMPOSSIBLE_KEYS:
            with pytest.raises(RowNotFoundError):
                await five.get(key)
            assert await five.delete(key) is False, ascii(key)
            assert await five.count() == 5, ascii(key)

    async def test_a_key_may_be_a_uuid(self, open_repository: OpenRepository) -> None:
        model = create_model('Ticket', number=UUID, text=str)
        tickets = await open_repository(model, key='number')
        ticket = model(number=UUID(int=11), text='x')
        await tickets.create(ticket)
        assert await tickets.get(str(UUID(int=11)).upper()) == ticket
        with pytest.raises(RowNotFoundError):
            await tickets.get('no uuid')

    async def test_a_row_that_cannot_be_kept_is_refused(self, five: Repository[Sample]) -> None:
        for values in _REFUSED:
            row = Sample(id='a').model_copy(update=values)
            for write in (five.create, five.upsert):
                with pytest.raises(InvalidRowError) as caught:
                    await write(row)
                assert caught.value.model == 'Sample'
            assert await five.get('a') == SAMPLES[0], ascii(values)
            assert await five.count() == 5, ascii(values)

    async def test_a_row_of_another_class_is_refused(self, rows: Repository[Sample]) -> None:
        class Larger(Sample):
            more: int

        with pytest.raises(InvalidRowError, match='Larger'):
            await rows.create(Larger(id='a', more=1))

    async def test_the_largest_values_are_kept(self, rows: Repository[Sample]) -> None:
        letters = random.Random(1)  # noqa: S311 - what does not compress is wanted, no secret
        for index, (count, weight, moment) in enumerate((
            (2**63 - 1, 1.7976931348623157e308, datetime.max.replace(tzinfo=UTC)),
            (-(2**63), 5e-324, datetime.min.replace(tzinfo=UTC)),
        )):  # fmt: skip
            key = str(index) + ''.join(chr(letters.randrange(33, 127)) for _ in range(MAX_KEY_BYTES - 1))
            name = ''.join(chr(letters.randrange(0x4E00, 0x9000)) for _ in range(MAX_TEXT_BYTES // 3))
            row = Sample(id=key, name=name, count=count, weight=weight, made_at=moment)
            await rows.create(row)
            assert await rows.get(key) == row
            where: Where = {'name': name, 'count': count, 'weight': weight, 'made_at': moment}
            assert (await rows.list(where)).items == [row]
        assert [row.count for row in (await rows.list(order_by='count')).items] == [-(2**63), 2**63 - 1]

    async def test_what_is_not_asked_by_has_no_bounds(self, rows: Repository[Sample]) -> None:
        row = Sample(id='a', notes=['a\0b', 'x' * 100_000, "'; DROP TABLE rows_sample; --"])
        await rows.create(row)
        assert await rows.get('a') == row

    # Fields

    @pytest.mark.parametrize('names', [('none',), ('notes',), ('id; DROP TABLE x',), 'name'])
    async def test_fields_that_cannot_be_asked_by_are_refused(
        self, open_repository: OpenRepository, names: Collection[str]
    ) -> None:
        with pytest.raises(InvalidFieldError, match='Sample'):
            await open_repository(Sample, fields=names)

    @pytest.mark.parametrize('key', ['none', 'count', 'name', 'notes', ''])
    async def test_fields_that_are_no_keys_are_refused(self, open_repository: OpenRepository, key: str) -> None:
        with pytest.raises(InvalidFieldError) as caught:
            await open_repository(Sample, key=key)
        assert caught.value.field == key

    async def test_fields_may_have_any_name(self, open_repository: OpenRepository) -> None:
        """004-04: a name is no part of a query, whatever it means there."""
        names = ('select', 'order', 'group', 'größe', 'Name', 'NAME', 'body', 'key', 'x' * 100)
        definitions: dict[str, Any] = {'table': str, **dict.fromkeys(names, (str | None, None))}
        model: type[BaseModel] = create_model('Odd', **definitions)
        rows = await open_repository(model, key='table', fields=names)
        for name in names:
            await rows.create(model.model_validate({'table': f'of {name}', name: 'it'}))
        for name in names:
            found = await rows.list({name: 'it'}, order_by=f'-{name}')
            assert [row.model_dump()['table'] for row in found.items] == [f'of {name}']

    # Questions

    async def test_a_question_is_answered(self, five: Repository[Sample]) -> None:
        """004-04: equality, null (`name=None` finds what is null), one of, range, prefix, and all of several."""
        for where, expected in _QUESTIONS:
            assert _keys(await five.list(where)) == expected, where
            assert await five.count(where) == len(expected), where

    async def test_any_text_is_a_value_and_no_pattern(self, five: Repository[Sample]) -> None:
        """004-04: strings that inject are inert as values."""
        for text in ODD_TEXTS:
            await five.upsert(Sample(id='odd', name=f'{text}.'))
            await five.upsert(Sample(id='other', name=f'.{text}'))
            for condition in (f'{text}.', In([f'{text}.']), Prefix(text), Range(ge=f'{text}.', le=f'{text}.')):
                assert [row.id for row in (await five.list({'name': condition})).items] == ['odd'], ascii(text)
            assert await five.count() == 7, ascii(text)

    async def test_what_is_no_field_is_not_asked_by(self, five: Repository[Sample]) -> None:
        """004-04: neither `where` nor `order_by` becomes a query: nothing is dropped, nothing is evaluated."""
        for name in _NO_FIELDS:
            for asked in (five.list(order_by=name), five.list({name: 'x'}), five.count({name: 'x'})):
                with pytest.raises(UnknownFieldError):
                    await asked
            assert _keys(await five.list()) == 'abcde', ascii(name)

    async def test_an_unknown_field_is_told_with_those_that_are_known(self, five: Repository[Sample]) -> None:
        with pytest.raises(UnknownFieldError, match='count, id, is_done, made_at, name, owner, shade, weight'):
            await five.list({'notes': 'x'})

    async def test_a_condition_that_does_not_fit_is_refused_and_names_its_field(self, five: Repository[Sample]) -> None:
        for where in cast('Sequence[Where]', _MISFITS):
            for asked in (five.list(where), five.count(where)):
                with pytest.raises(InvalidQuestionError) as caught:
                    await asked
                assert [caught.value.field] == list(where)

    async def test_many_values_may_be_asked_for(self, five: Repository[Sample]) -> None:
        values = [f'no {number}' for number in range(9_999)]
        assert _keys(await five.list({'name': In([*values, 'alpha'])})) == 'a'

    @pytest.mark.parametrize('limit', [0, -1, 1001, 10**5000], ids=['0', '-1', '1001', 'many digits'])
    async def test_a_limit_has_bounds(self, rows: Repository[Sample], limit: int) -> None:
        with pytest.raises(InvalidQuestionError, match='1,000') as caught:
            await rows.list(limit=limit)
        assert caught.value.field == 'limit'

    async def test_nothing_is_found_where_nothing_is(self, rows: Repository[Sample]) -> None:
        assert await rows.list() == Page(items=[], cursor=None)
        assert await rows.count() == 0

    # Order and pages

    async def test_rows_are_ordered(self, five: Repository[Sample]) -> None:
        for order, expected in _ORDERS:
            assert _keys(await five.list(order_by=order)) == expected, order

    async def test_text_is_ordered_by_code_points(self, rows: Repository[Sample]) -> None:
        names = ['', 'A', 'Z', 'a', 'a ', 'a!', 'aa', 'b', 'z', 'é', '\uff5e', '\U0001f642']
        for number, name in enumerate(names):
            await rows.create(Sample(id=f'{-number % 7}{number}', name=name))
        assert [row.name for row in (await rows.list(order_by='name')).items] == names
        assert [row.name for row in (await rows.list({'name': Range(ge='a', lt='b')}, order_by='-name')).items] == [
            'aa', 'a!', 'a ', 'a',
        ]  # fmt: skip

    @pytest.mark.parametrize('limit', [1, 2, 4, 5])
    async def test_pages_have_each_row_once_and_in_order(self, five: Repository[Sample], limit: int) -> None:
        """004-04: paging by cursor."""
        for order, expected in _ORDERS:
            pages = await _pages(five, None, order, limit)
            assert ''.join(map(_keys, pages)) == expected, order
            assert [len(page.items) for page in pages] == [min(limit, 5 - at) for at in range(0, 5, limit)], order

    async def test_pages_keep_to_their_question(self, five: Repository[Sample]) -> None:
        pages = await _pages(five, {'shade': Shade.LIGHT}, '-count', 1)
        assert [_keys(page) for page in pages] == ['b', 'a', 'd']

    @pytest.mark.parametrize('order', ['id', '-id', 'name', '-name', 'count', '-count'])
    async def test_what_comes_and_goes_neither_shifts_nor_repeats_a_row(
        self, rows: Repository[Sample], order: str
    ) -> None:
        def row(number: int) -> Sample:
            return Sample(
                id=f'{number:02}', name=None if number < 4 else f'{number // 4:02}', count=number // 3 or None
            )

        for number in range(0, 20, 2):
            await rows.create(row(number))
        page = await rows.list(order_by=order, limit=3)
        seen = [each.id for each in page.items]
        for number in (1, 5, 9, 13, 19):
            await rows.create(row(number))
        await rows.delete(seen[-1])
        await rows.delete(seen[0])
        while page.cursor is not None:
            page = await rows.list(order_by=order, limit=3, cursor=page.cursor)
            seen += [each.id for each in page.items]
        assert len(seen) == len(set(seen))
        assert {f'{number:02}' for number in range(0, 20, 2)} <= set(seen)

    async def test_a_cursor_belongs_to_its_question(self, five: Repository[Sample]) -> None:
        cursor = (await five.list({'shade': 'light'}, order_by='count', limit=1)).cursor
        for where, order in (
            (None, 'count'), ({'shade': 'dark'}, 'count'), ({'shade': In(['light', 'dark'])}, 'count'),
            ({'shade': 'light'}, '-count'), ({'shade': 'light'}, 'weight'), ({'shade': 'light'}, None),
        ):  # fmt: skip
            with pytest.raises(InvalidCursorError, match='no cursor of this question'):
                await five.list(where, order_by=order, limit=1, cursor=cursor)

    async def test_a_cursor_serves_twice_and_with_another_limit(self, five: Repository[Sample]) -> None:
        cursor = (await five.list(limit=2)).cursor
        assert _keys(await five.list(limit=2, cursor=cursor)) == 'cd'
        assert _keys(await five.list(limit=9, cursor=cursor)) == 'cde'

    async def test_what_is_no_cursor_is_refused(self, five: Repository[Sample]) -> None:
        """004-04: strings that inject are inert as cursors."""
        for cursor in _NO_CURSORS:
            with pytest.raises(InvalidCursorError):
                await five.list(cursor=cursor)
        assert await five.count() == 5

    async def test_a_cursor_may_stand_in_an_address(self, rows: Repository[Sample]) -> None:
        for text in ODD_TEXTS:
            await rows.create(Sample(id=text, name=text))
        pages = await _pages(rows, None, 'name', 1)
        assert [page.items[0].id for page in pages] == sorted(ODD_TEXTS)
        alphabet = set('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_')
        assert all(set(page.cursor or 'a') <= alphabet for page in pages)

    # Transactions

    async def test_changes_are_done_in_their_order(self, five: Repository[Sample]) -> None:
        """004-04: transactions, where the engine has them."""
        await _apply(five, [Delete('a'), Create(Sample(id='a', name='new')), Upsert(Sample(id='f')), Delete('f')])
        assert (await five.get('a')).name == 'new'
        assert _keys(await five.list()) == 'abcde'

    async def test_changes_of_which_one_fails_leave_nothing(self, five: Repository[Sample]) -> None:
        with pytest.raises(RowExistsError, match="'b'"):
            await _apply(five, [Delete('a'), Upsert(Sample(id='c')), Create(Sample(id='f')), Create(Sample(id='b'))])
        assert (await five.list()).items == list(SAMPLES)

    async def test_changes_of_which_one_cannot_be_kept_leave_nothing(self, five: Repository[Sample]) -> None:
        with pytest.raises(InvalidRowError):
            await _apply(five, [Delete('a'), Upsert(Sample(id='c', name='a\0b'))])
        assert (await five.list()).items == list(SAMPLES)

    async def test_what_cannot_be_kept_is_refused_before_anything_is_done(self, five: Repository[Sample]) -> None:
        with pytest.raises(InvalidRowError):
            await _apply(five, [Create(Sample(id='a')), Upsert(Sample(id='c', name='a\0b'))])

    async def test_no_changes_change_nothing(self, five: Repository[Sample]) -> None:
        await _apply(five, [])
        await _apply(five, [Delete('a\0b'), Delete('none')])
        assert (await five.list()).items == list(SAMPLES)

    # Many at once

    async def test_many_tasks_may_write_at_once(self, rows: Repository[Sample]) -> None:
        await asyncio.gather(*(rows.upsert(Sample(id=f'{task:02}', count=task)) for task in range(_TASKS)))
        assert [row.count for row in (await rows.list()).items] == list(range(_TASKS))

    async def test_many_tasks_may_write_one_row(self, rows: Repository[Sample]) -> None:
        await asyncio.gather(*(rows.upsert(Sample(id='a', count=task, name=f'of {task}')) for task in range(_TASKS)))
        (row,) = (await rows.list()).items
        assert row.name == f'of {row.count}'
        assert await rows.count({'name': row.name, 'count': row.count}) == 1

    async def test_one_of_many_tasks_creates_a_row(self, rows: Repository[Sample]) -> None:
        async def create(task: int) -> int | None:
            try:
                await rows.create(Sample(id='a', count=task))
            except RowExistsError:
                return None
            return task

        winners = [task for task in await asyncio.gather(*map(create, range(_TASKS))) if task is not None]
        assert winners == [(await rows.get('a')).count]

    # Opening and closing

    async def test_what_is_closed_says_so(self, five: Repository[Sample]) -> None:
        await five.aclose()
        await five.aclose()
        row = Sample(id='z')
        for asked in (
            five.create(row), five.get('a'), five.list(), five.upsert(row), five.delete('a'), five.count(),
        ):  # fmt: skip
            with pytest.raises(RepositoryClosedError):
                await asked
        if isinstance(cast('object', five), SupportsTransactions):
            with pytest.raises(RepositoryClosedError):
                await _apply(five, [])

    async def test_what_was_acknowledged_is_there_after_closing(self, open_repository: OpenRepository) -> None:
        if not self.is_durable:
            pytest.skip('It keeps nothing after it is closed.')
        rows = await open_repository(Sample, fields=FIELDS)
        for row in SAMPLES:
            await rows.create(row)
        await rows.aclose()
        again = await open_repository(Sample, fields=FIELDS)
        assert (await again.list()).items == list(SAMPLES)
        assert _keys(await again.list({'count': 2}, order_by='-name')) == 'bc'

    async def test_what_a_model_does_not_have_is_kept_for_one_that_has(self, open_repository: OpenRepository) -> None:
        if not self.is_durable:
            pytest.skip('It keeps nothing after it is closed.')
        rows = await open_repository(Sample, fields=FIELDS)
        for row in SAMPLES:
            await rows.create(row)
        await rows.aclose()
        older = await open_repository(create_model('Sample', id=(str, ...)))
        assert await older.count() == len(SAMPLES)
        await older.aclose()
        again = await open_repository(Sample, fields=FIELDS)
        assert (await again.list()).items == list(SAMPLES)
        assert _keys(await again.list({'count': 2}, order_by='-name')) == 'bc'

    async def test_several_on_one_place_see_the_same(self, open_repository: OpenRepository) -> None:
        self.needs_sharing()
        one, other = [await open_repository(Sample, fields=FIELDS) for _ in range(2)]
        await one.create(SAMPLES[0])
        await other.upsert(SAMPLES[1])
        assert (await one.list()).items == (await other.list()).items == [SAMPLES[0], SAMPLES[1]]
        await one.aclose()
        assert await other.get('a') == SAMPLES[0]

    async def test_models_on_one_place_do_not_meet(self, open_repository: OpenRepository) -> None:
        """004-04: one repository a model."""
        self.needs_sharing()
        samples = await open_repository(Sample, fields=FIELDS)
        others = await open_repository(create_model('Other', id=str), fields=())
        await samples.create(SAMPLES[0])
        assert await others.count() == 0

    async def test_a_field_can_be_asked_by_that_could_not_before(self, open_repository: OpenRepository) -> None:
        self.needs_sharing()
        before = await open_repository(Sample, fields=('name',))
        for row in SAMPLES:
            await before.create(row)
        await before.aclose()
        rows = await open_repository(Sample, fields=FIELDS)
        assert _keys(await rows.list({'count': 2}, order_by='-made_at')) == 'bc'
        assert await rows.count({'name': None}) == 1

    async def test_a_row_of_an_older_model_gets_its_defaults(self, open_repository: OpenRepository) -> None:
        self.needs_sharing()
        first = create_model('Thing', id=str)
        old = await open_repository(first)
        await old.create(first(id='a'))
        await old.aclose()
        second = create_model('Thing', id=str, size=(int, 5))
        new = await open_repository(second, fields=('size',))
        assert (await new.list({'size': 5})).items == [second(id='a', size=5)]

    async def test_a_row_that_is_none_of_its_model_any_more_is_told_and_hides_no_other(
        self, open_repository: OpenRepository
    ) -> None:
        self.needs_sharing()
        first = create_model('Thing', id=str, size=(int | None, None))
        old = await open_repository(first)
        for row in (first(id='a', size=1), first(id='b'), first(id='c', size=3)):
            await old.create(row)
        await old.aclose()
        second = create_model('Thing', id=str, size=int)
        new = await open_repository(second)
        for asked in (new.get('b'), new.list()):
            with pytest.raises(UnreadableRowError, match="'b'") as caught:
                await asked
            assert (caught.value.key, caught.value.field) == ('b', 'size')
        assert await new.count() == 3
        assert await new.get('c') == second(id='c', size=3)
        await new.upsert(second(id='b', size=2))
        assert (await new.list()).items == [second(id='a', size=1), second(id='b', size=2), second(id='c', size=3)]

    async def test_a_row_that_is_none_of_its_model_any_more_can_be_deleted(
        self, open_repository: OpenRepository
    ) -> None:
        self.needs_sharing()
        first = create_model('Thing', id=str)
        old = await open_repository(first)
        await old.create(first(id='a'))
        await old.aclose()
        new = await open_repository(create_model('Thing', id=str, size=int))
        assert await new.delete('a') is True
        assert await new.count() == 0

    # What the rules need

    def needs_sharing(self) -> None:
        """Skip a rule where nobody sees the rows of another."""
        if not self.is_shared:
            pytest.skip('Nobody else sees its rows.')


def _keys(page: Page[Sample]) -> str:
    """Return the keys of rows, which are letters."""
    return ''.join(row.id for row in page.items)


async def _pages(
    rows: Repository[Sample], where: Where | None, order: str | None, limit: int
) -> list[Page[Sample]]:  # fmt: skip
    pages = [await rows.list(where, order_by=order, limit=limit)]
    while (cursor := pages[-1].cursor) is not None:
        pages.append(await rows.list(where, order_by=order, limit=limit, cursor=cursor))
    return pages


async def _apply(rows: Repository[Sample], changes: Sequence[Change[Sample]]) -> None:
    if not isinstance(cast('object', rows), SupportsTransactions):
        pytest.skip('It has no transactions.')
    await cast('SupportsTransactions[Sample]', rows).apply(changes)
