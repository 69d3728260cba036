"""Rules about rows and keys."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import pytest
from pydantic import create_model

from pydantic_deep.repository._model import MAX_KEY_BYTES, MAX_TEXT_BYTES
from pydantic_deep.repository._protocol import Repository
from pydantic_deep.repository._types import Where
from pydantic_deep.repository.errors import InvalidRowError, RowExistsError, RowNotFoundError

from ._base import ODD_TEXTS, SAMPLES, OpenRepository, RepositoryRules, Sample, keys

_IMPOSSIBLE_KEYS: Final = ('', 'a\0b', '\ud800', 'x' * (MAX_KEY_BYTES + 1))


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
"""Values with which a row cannot be stored."""


class RowRules(RepositoryRules):
    """Rules about rows and keys."""

    async def test_created_row_is_read_unchanged(self, five: Repository[Sample]) -> None:
        """004-04: create and get, for any model."""
        assert [await five.get(row.id) for row in SAMPLES] == list(SAMPLES)

    async def test_existing_row_is_not_created_again(self, five: Repository[Sample]) -> None:
        with pytest.raises(RowExistsError, match='upsert') as caught:
            await five.create(Sample(id='a', name='other'))
        assert (caught.value.model, caught.value.key) == ('Sample', 'a')
        assert await five.get('a') == SAMPLES[0]

    async def test_missing_row_is_not_found(self, five: Repository[Sample]) -> None:
        with pytest.raises(RowNotFoundError, match="'z'") as caught:
            await five.get('z')
        assert (caught.value.model, caught.value.key) == ('Sample', 'z')

    async def test_upsert_adds_a_row(self, rows: Repository[Sample]) -> None:
        await rows.upsert(SAMPLES[0])
        assert await rows.get('a') == SAMPLES[0]

    async def test_upsert_replaces_a_whole_row(self, five: Repository[Sample]) -> None:
        """004-04: update, including the filterable fields."""
        await five.upsert(Sample(id='a', count=9))
        assert await five.get('a') == Sample(id='a', count=9)
        assert await five.count() == 5
        assert keys(await five.list({'name': 'alpha'})) == ''
        assert keys(await five.list({'name': None})) == 'ac'
        assert keys(await five.list({'count': 9})) == 'a'

    async def test_deleted_row_is_not_found(self, five: Repository[Sample]) -> None:
        """004-04: delete returns whether the row existed."""
        assert await five.delete('b') is True
        assert await five.delete('b') is False
        assert keys(await five.list()) == 'acde'
        with pytest.raises(RowNotFoundError):
            await five.get('b')

    async def test_deleted_row_can_be_created_again(self, five: Repository[Sample]) -> None:
        await five.delete('b')
        await five.create(Sample(id='b', name='new'))
        assert (await five.get('b')).name == 'new'

    async def test_rows_are_copied_when_stored_and_when_returned(self, rows: Repository[Sample]) -> None:
        original = Sample(id='a', notes=['one'])
        await rows.create(original)
        original.notes.append('two')
        returned = await rows.get('a')
        returned.notes.append('three')
        assert (await rows.get('a')).notes == ['one']

    async def test_any_text_can_be_a_key(self, five: Repository[Sample]) -> None:
        """004-04: injection strings have no effect as keys."""
        for text in ODD_TEXTS:
            row = Sample(id=text, name='odd')
            await five.create(row)
            assert await five.get(text) == row
            assert [sample.id for sample in (await five.list({'id': text})).items] == [text]
            assert await five.delete(text) is True
            assert keys(await five.list()) == 'abcde', ascii(text)

    async def test_impossible_key_is_not_found(self, five: Repository[Sample]) -> None:
        for key in _IMPOSSIBLE_KEYS:
            with pytest.raises(RowNotFoundError):
                await five.get(key)
            assert await five.delete(key) is False, ascii(key)
            assert await five.count() == 5, ascii(key)

    async def test_key_can_be_a_uuid(self, open_repository: OpenRepository) -> None:
        model = create_model('Ticket', number=UUID, text=str)
        tickets = await open_repository(model, key='number')
        ticket = model(number=UUID(int=11), text='x')
        await tickets.create(ticket)
        assert await tickets.get(str(UUID(int=11)).upper()) == ticket
        with pytest.raises(RowNotFoundError):
            await tickets.get('no uuid')

    async def test_unstorable_row_is_refused(self, five: Repository[Sample]) -> None:
        for values in _REFUSED:
            row = Sample(id='a').model_copy(update=values)
            for write in (five.create, five.upsert):
                with pytest.raises(InvalidRowError) as caught:
                    await write(row)
                assert caught.value.model == 'Sample'
            assert await five.get('a') == SAMPLES[0], ascii(values)
            assert await five.count() == 5, ascii(values)

    async def test_row_of_another_class_is_refused(self, rows: Repository[Sample]) -> None:
        class Larger(Sample):
            more: int

        with pytest.raises(InvalidRowError, match='Larger'):
            await rows.create(Larger(id='a', more=1))

    async def test_largest_values_are_stored(self, rows: Repository[Sample]) -> None:
        letters = random.Random(1)  # noqa: S311 - incompressible text is needed, not a secret
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

    async def test_unqueryable_fields_are_unbounded(self, rows: Repository[Sample]) -> None:
        row = Sample(id='a', notes=['a\0b', 'x' * 100_000, "'; DROP TABLE rows_sample; --"])
        await rows.create(row)
        assert await rows.get('a') == row
