"""Rules about the replacement of a row by a function of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar, cast

import pytest

from pydantic_deep.repository._protocol import Repository, SupportsUpdates
from pydantic_deep.repository.errors import InvalidRowError

from ._base import FIELDS, SAMPLES, OpenRepository, RepositoryRules, Sample, keys


def _with_note(note: str) -> Callable[[Sample | None], Sample]:
    """Return a change that adds a note, and the row if there is none."""

    def change(row: Sample | None) -> Sample:
        row = row or Sample(id='a')
        return row.model_copy(update={'notes': [*row.notes, note]})

    return change


class UpdateRules(RepositoryRules):
    """Rules about the replacement of a row by a function of it."""

    concurrent_updates: ClassVar[int] = 20
    """The number of simultaneous updates of one row."""

    async def test_update_replaces_a_row_by_a_function_of_it(self, five: Repository[Sample]) -> None:
        rows = _updatable(five)
        changed = SAMPLES[0].model_copy(update={'name': 'new', 'count': 9})
        assert await rows.update('a', lambda row: row and row.model_copy(update={'name': 'new', 'count': 9})) == changed
        assert await five.get('a') == changed
        assert keys(await five.list({'name': 'new', 'count': 9})) == 'a'
        assert keys(await five.list({'name': 'alpha'})) == ''

    async def test_update_adds_a_missing_row(self, five: Repository[Sample]) -> None:
        assert await _updatable(five).update('f', lambda row: row or Sample(id='f')) == Sample(id='f')
        assert await five.get('f') == Sample(id='f')

    async def test_update_to_none_removes_a_row(self, five: Repository[Sample]) -> None:
        rows = _updatable(five)
        for key in ('a', 'missing', 'a\0b'):
            assert await rows.update(key, lambda row: None) is None, ascii(key)
        assert keys(await five.list()) == 'bcde'

    async def test_unchanged_row_remains(self, five: Repository[Sample]) -> None:
        assert await _updatable(five).update('a', lambda row: row) == SAMPLES[0]
        assert (await five.list()).items == list(SAMPLES)

    async def test_row_may_be_changed_in_place(self, five: Repository[Sample]) -> None:
        def change(row: Sample | None) -> Sample | None:
            assert row is not None
            row.notes.append('new')
            return row

        assert await _updatable(five).update('a', change) == await five.get('a')
        assert (await five.get('a')).notes == ['new']

    async def test_failed_update_changes_nothing(self, five: Repository[Sample]) -> None:
        """An error of the caller is raised as it is, also one that a database could raise."""
        rows = _updatable(five)
        for error in (ValueError('no'), OSError('no'), TimeoutError('no')):

            def refuse(row: Sample | None, error: Exception = error) -> Sample | None:
                assert row is not None
                row.name = 'lost'
                raise error

            with pytest.raises(type(error), match='no') as caught:
                await rows.update('a', refuse)
            assert caught.value is error
        assert (await five.list()).items == list(SAMPLES)

    async def test_unstorable_update_changes_nothing(self, five: Repository[Sample]) -> None:
        rows = _updatable(five)
        for row in (Sample(id='other'), Sample(id='a', name='a\0b'), Sample(id='b')):
            with pytest.raises(InvalidRowError):
                await rows.update('a', lambda _, row=row: row)
        for key in ('', 'a\0b'):
            with pytest.raises(InvalidRowError):
                await rows.update(key, lambda _, key=key: Sample(id=key))
        assert (await five.list()).items == list(SAMPLES)

    async def test_concurrent_updates_of_one_row_are_all_applied(
        self, open_repository: OpenRepository, rows: Repository[Sample]
    ) -> None:
        """Whether the row exists, and through whichever repository of the database they are made."""
        places = [rows, await open_repository(Sample, fields=FIELDS) if self.is_shared else rows]
        tasks = self.concurrent_updates
        for numbers in (range(tasks), range(tasks, 2 * tasks)):
            await asyncio.gather(*(_updatable(places[each % 2]).update('a', _with_note(str(each))) for each in numbers))
        assert sorted(map(int, (await rows.get('a')).notes)) == list(range(2 * tasks))

    async def test_update_does_not_restore_a_row_that_is_deleted_meanwhile(self, five: Repository[Sample]) -> None:
        rows = _updatable(five)
        for _ in range(self.concurrent_updates):
            await five.upsert(SAMPLES[0])
            update = rows.update('a', lambda row: row and _with_note('late')(row))
            await asyncio.gather(update, five.delete('a'))
            assert keys(await five.list()) == 'bcde'


def _updatable(rows: Repository[Sample]) -> SupportsUpdates[Sample]:
    if not isinstance(cast('object', rows), SupportsUpdates):
        pytest.skip('It has no updates.')
    return cast('SupportsUpdates[Sample]', rows)
