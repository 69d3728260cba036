"""Rules about order and pages."""

from __future__ import annotations

from typing import Final

import pytest

from pydantic_deep.repository._protocol import Repository
from pydantic_deep.repository._types import In, Page, Range, Where
from pydantic_deep.repository.errors import InvalidCursorError

from ._base import ODD_TEXTS, RepositoryRules, Sample, Shade, keys

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
"""Orders, with the keys of `SAMPLES` in each: null is the smallest value, and ties are ordered by key."""


_NO_CURSORS: Final = (
    '', ' ', 'x', '====', 'WyJ4Il0', 'bnVsbA', 'W10', 'é', '\0', '\ud800', "'; DROP TABLE rows_sample; --", '[' * 20_000,
)  # fmt: skip


class PageRules(RepositoryRules):
    """Rules about order and pages."""

    async def test_rows_are_ordered(self, five: Repository[Sample]) -> None:
        for order, expected in _ORDERS:
            assert keys(await five.list(order_by=order)) == expected, order

    async def test_text_is_ordered_by_code_points(self, rows: Repository[Sample]) -> None:
        names = ['', 'A', 'Z', 'a', 'a ', 'a!', 'aa', 'b', 'z', 'é', '\uff5e', '\U0001f642']
        for number, name in enumerate(names):
            await rows.create(Sample(id=f'{-number % 7}{number}', name=name))
        assert [row.name for row in (await rows.list(order_by='name')).items] == names
        assert [row.name for row in (await rows.list({'name': Range(ge='a', lt='b')}, order_by='-name')).items] == [
            'aa', 'a!', 'a ', 'a',
        ]  # fmt: skip

    @pytest.mark.parametrize('limit', [1, 2, 4, 5])
    async def test_pages_contain_each_row_once_in_order(self, five: Repository[Sample], limit: int) -> None:
        """004-04: paging by cursor."""
        for order, expected in _ORDERS:
            pages = await _pages(five, None, order, limit)
            assert ''.join(map(keys, pages)) == expected, order
            assert [len(page.items) for page in pages] == [min(limit, 5 - at) for at in range(0, 5, limit)], order

    async def test_pages_match_their_query(self, five: Repository[Sample]) -> None:
        pages = await _pages(five, {'shade': Shade.LIGHT}, '-count', 1)
        assert [keys(page) for page in pages] == ['b', 'a', 'd']

    @pytest.mark.parametrize('order', ['id', '-id', 'name', '-name', 'count', '-count'])
    async def test_concurrent_changes_neither_shift_nor_repeat_rows(self, rows: Repository[Sample], order: str) -> None:
        def row(number: int) -> Sample:
            return Sample(
                id=f'{number:02}', name=None if number < 4 else f'{number // 4:02}', count=number // 3 or None
            )

        for number in range(0, 20, 2):
            await rows.create(row(number))
        page = await rows.list(order_by=order, limit=3)
        seen = [sample.id for sample in page.items]
        for number in (1, 9, 13, 19):
            await rows.create(row(number))
        await rows.delete(seen[-1])
        await rows.delete(seen[0])
        while page.cursor is not None:
            page = await rows.list(order_by=order, limit=3, cursor=page.cursor)
            seen += [sample.id for sample in page.items]
        assert len(seen) == len(set(seen))
        assert {f'{number:02}' for number in range(0, 20, 2)} <= set(seen)

    async def test_cursor_is_valid_for_its_query_only(self, five: Repository[Sample]) -> None:
        cursor = (await five.list({'shade': 'light'}, order_by='count', limit=1)).cursor
        for where, order in (
            (None, 'count'), ({'shade': 'dark'}, 'count'), ({'shade': In(['light', 'dark'])}, 'count'),
            ({'shade': 'light'}, '-count'), ({'shade': 'light'}, 'weight'), ({'shade': 'light'}, None),
        ):  # fmt: skip
            with pytest.raises(InvalidCursorError, match='not a cursor of this query'):
                await five.list(where, order_by=order, limit=1, cursor=cursor)

    async def test_cursor_can_be_reused_with_another_limit(self, five: Repository[Sample]) -> None:
        cursor = (await five.list(limit=2)).cursor
        assert keys(await five.list(limit=2, cursor=cursor)) == 'cd'
        assert keys(await five.list(limit=9, cursor=cursor)) == 'cde'

    async def test_invalid_cursor_is_refused(self, five: Repository[Sample]) -> None:
        """004-04: injection strings have no effect as cursors."""
        for cursor in _NO_CURSORS:
            with pytest.raises(InvalidCursorError):
                await five.list(cursor=cursor)
        assert await five.count() == 5

    async def test_cursor_is_safe_in_urls(self, rows: Repository[Sample]) -> None:
        for text in ODD_TEXTS:
            await rows.create(Sample(id=text, name=text))
        pages = await _pages(rows, None, 'name', 1)
        assert [page.items[0].id for page in pages] == sorted(ODD_TEXTS)
        alphabet = set('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_')
        assert all(set(page.cursor or 'a') <= alphabet for page in pages)


async def _pages(
    rows: Repository[Sample], where: Where | None, order: str | None, limit: int
) -> list[Page[Sample]]:  # fmt: skip
    pages = [await rows.list(where, order_by=order, limit=limit)]
    while (cursor := pages[-1].cursor) is not None:
        pages.append(await rows.list(where, order_by=order, limit=limit, cursor=cursor))
    return pages
