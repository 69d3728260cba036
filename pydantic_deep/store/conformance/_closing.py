"""Rules about several open stores, closing and backups."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pydantic_deep.store._open import open_store as open_at
from pydantic_deep.store._open import restore_store
from pydantic_deep.store._protocol import SupportsBackup
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.errors import StoreClosedError
from pydantic_deep.store.records import Commit

from ._base import OpenStore, StoreRules


class ClosingRules(StoreRules):
    """Rules about several open stores, closing and backups."""

    async def test_acknowledged_data_exists_after_closing(self, open_store: OpenStore) -> None:
        if not self.is_durable:
            pytest.skip('this store says that it is not durable')
        store = await open_store()
        root = await Dialogue(store).begin(name='kept')
        await store.aclose()
        assert await (await open_store()).versions() == [root]

    async def test_all_open_stores_see_the_same_versions(self, open_store: OpenStore) -> None:
        first, second = await open_store(), await open_store()
        root = await Dialogue(first).begin()
        assert await second.version(root.id) == root

    async def test_concurrent_writers_lose_nothing(self, open_store: OpenStore) -> None:
        dialogues = [Dialogue(await open_store()) for _ in range(4)]

        async def talk(dialogue: Dialogue) -> None:
            version = await dialogue.begin()
            for index in range(10):
                version = await dialogue.add(version, b'%d' % index)
            assert await dialogue.history(version) == [b'%d' % index for index in range(10)]

        await asyncio.gather(*map(talk, dialogues))
        assert await dialogues[0].store.count() == 44

    async def test_closed_store_raises(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.aclose()
        await store.aclose()
        with pytest.raises(StoreClosedError):
            await store.count()
        with pytest.raises(StoreClosedError):
            await store.commit(Commit())

    async def test_cancelled_commit_does_not_damage_the_store(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        task = asyncio.ensure_future(dialogue.add(root, b'1'))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        after = await dialogue.add(root, b'2')
        assert await dialogue.history(after) == [b'2']

    async def test_backup_is_restored_completely(self, dialogue: Dialogue, tmp_path: Path) -> None:
        # All stores of this package have backups.
        if not isinstance(dialogue.store, SupportsBackup):  # pragma: no cover
            pytest.skip('The store has no backups.')
        turn = await dialogue.add(await dialogue.begin(), b'1', b'2')
        assert await dialogue.store.check() == []
        rows = await dialogue.store.backup(tmp_path / 'store.backup')
        url = f'sqlite:///{tmp_path}/restored.db'
        assert await restore_store(url, tmp_path / 'store.backup') == rows
        async with open_at(url, read_only=True) as restored:
            assert await restored.version(turn.id) == turn
            assert await Dialogue(restored, dialogue.id).history(turn) == [b'1', b'2']
            assert await restored.check() == []
