"""Tables of repositories beside those of a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import Create, SqlRepository
from pydantic_deep.store import BackupError, open_store, restore_store

pytestmark = pytest.mark.anyio


class Note(BaseModel):
    """A row of a repository."""

    id: str
    stars: int


async def test_backup_includes_repositories_of_the_database(tmp_path: Path, postgres_url: str) -> None:
    """Tables of repositories, such as audit records and server keys, are in the backup on either engine, and can be
    queried by the same fields after restoring.
    """
    notes = [Note(id=f'n{number:04}', stars=number % 5) for number in range(1200)]
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as first:
        repository = await SqlRepository.open(first, Note, fields={'stars'})
        await repository.apply([Create(note) for note in notes])
        await first.backup(tmp_path / 'first.backup')
    await restore_store(postgres_url, tmp_path / 'first.backup')
    async with open_store(postgres_url) as second:
        await second.backup(tmp_path / 'second.backup')
    await restore_store(f'sqlite:///{tmp_path}/third.db', tmp_path / 'second.backup')
    for url in (postgres_url, f'sqlite:///{tmp_path}/third.db'):
        async with open_store(url) as store:
            repository = await SqlRepository.open(store, Note, fields={'stars'})
            assert await repository.count({'stars': 3}) == 240
            assert await repository.get('n1199') == notes[-1]
            assert await store.check() == []
    with pytest.raises(BackupError, match='not empty'):
        await restore_store(postgres_url, tmp_path / 'first.backup')
