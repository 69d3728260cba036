"""Rules about opening and closing, and about models that change."""

from __future__ import annotations

from typing import cast

import pytest
from pydantic import create_model

from pydantic_deep.repository._protocol import Repository, SupportsTransactions
from pydantic_deep.repository.errors import RepositoryClosedError, UnreadableRowError

from ._base import FIELDS, SAMPLES, OpenRepository, RepositoryRules, Sample, apply, keys


class OpeningRules(RepositoryRules):
    """Rules about opening and closing, and about models that change."""

    async def test_closed_repository_raises(self, five: Repository[Sample]) -> None:
        await five.aclose()
        await five.aclose()
        row = Sample(id='z')
        for call in (
            five.create(row), five.get('a'), five.list(), five.upsert(row), five.delete('a'), five.count(),
        ):  # fmt: skip
            with pytest.raises(RepositoryClosedError):
                await call
        if isinstance(cast('object', five), SupportsTransactions):
            with pytest.raises(RepositoryClosedError):
                await apply(five, [])

    async def test_acknowledged_data_exists_after_closing(self, open_repository: OpenRepository) -> None:
        await self._fill(open_repository)
        await self._check_samples(open_repository)

    async def test_fields_unknown_to_a_model_are_preserved(self, open_repository: OpenRepository) -> None:
        await self._fill(open_repository)
        older = await open_repository(create_model('Sample', id=(str, ...)))
        assert await older.count() == len(SAMPLES)
        await older.aclose()
        await self._check_samples(open_repository)

    async def _fill(self, open_repository: OpenRepository) -> None:
        """Store the samples and close the repository."""
        if not self.is_durable:
            pytest.skip('It keeps nothing after it is closed.')
        rows = await open_repository(Sample, fields=FIELDS)
        for row in SAMPLES:
            await rows.create(row)
        await rows.aclose()

    async def _check_samples(self, open_repository: OpenRepository) -> None:
        again = await open_repository(Sample, fields=FIELDS)
        assert (await again.list()).items == list(SAMPLES)
        assert keys(await again.list({'count': 2}, order_by='-name')) == 'bc'

    async def test_repositories_on_one_database_see_the_same_rows(self, open_repository: OpenRepository) -> None:
        self.needs_sharing()
        one, other = [await open_repository(Sample, fields=FIELDS) for _ in range(2)]
        await one.create(SAMPLES[0])
        await other.upsert(SAMPLES[1])
        assert (await one.list()).items == (await other.list()).items == [SAMPLES[0], SAMPLES[1]]
        await one.aclose()
        assert await other.get('a') == SAMPLES[0]

    async def test_models_in_one_database_are_separate(self, open_repository: OpenRepository) -> None:
        """004-04: one repository per model."""
        self.needs_sharing()
        samples = await open_repository(Sample, fields=FIELDS)
        others = await open_repository(create_model('Other', id=str), fields=())
        await samples.create(SAMPLES[0])
        assert await others.count() == 0

    async def test_field_can_become_queryable_later(self, open_repository: OpenRepository) -> None:
        self.needs_sharing()
        before = await open_repository(Sample, fields=('name',))
        for row in SAMPLES:
            await before.create(row)
        await before.aclose()
        rows = await open_repository(Sample, fields=FIELDS)
        assert keys(await rows.list({'count': 2}, order_by='-made_at')) == 'bc'
        assert await rows.count({'name': None}) == 1

    async def test_row_of_an_older_model_gets_defaults(self, open_repository: OpenRepository) -> None:
        self.needs_sharing()
        first = create_model('Thing', id=str)
        old = await open_repository(first)
        await old.create(first(id='a'))
        await old.aclose()
        second = create_model('Thing', id=str, size=(int, 5))
        new = await open_repository(second, fields=('size',))
        assert (await new.list({'size': 5})).items == [second(id='a', size=5)]

    async def test_row_that_no_longer_matches_its_model_raises_and_hides_no_other_row(
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
        for call in (new.get('b'), new.list()):
            with pytest.raises(UnreadableRowError, match="'b'") as caught:
                await call
            assert (caught.value.key, caught.value.field) == ('b', 'size')
        assert await new.count() == 3
        assert await new.get('c') == second(id='c', size=3)
        await new.upsert(second(id='b', size=2))
        assert (await new.list()).items == [second(id='a', size=1), second(id='b', size=2), second(id='c', size=3)]

    async def test_row_that_no_longer_matches_its_model_can_be_deleted(self, open_repository: OpenRepository) -> None:
        self.needs_sharing()
        first = create_model('Thing', id=str)
        old = await open_repository(first)
        await old.create(first(id='a'))
        await old.aclose()
        new = await open_repository(create_model('Thing', id=str, size=int))
        assert await new.delete('a') is True
        assert await new.count() == 0
