"""Contents are stored once, and survive as long as something mentions them."""

from __future__ import annotations

import pytest

from pydantic_deep.store import AssetNotFoundError, Commit, SqlStore
from pydantic_deep.store._samples import Dialogue, sample_asset, sample_request, sample_run
from pydantic_deep.store.engine import Operation, Statement

pytestmark = pytest.mark.anyio


async def rows_of(store: SqlStore, table: str) -> int:
    def count() -> Operation[int]:
        [(number,)] = yield Statement(f'SELECT COUNT(*) FROM {table}')
        return int(str(number))

    return await store.engine.read(count)


async def test_existing_contents_are_not_stored_again(store: SqlStore) -> None:
    assets = [sample_asset(b'%d' % number) for number in range(150)]
    for _ in range(2):
        await store.commit(Commit(assets=assets))
        assert await rows_of(store, 'asset') == 150


async def test_contents_mentioned_in_a_message_are_collected_with_it(store: SqlStore) -> None:
    asset, other = sample_asset(b'mentioned'), sample_asset(b'not mentioned')
    dialogue = Dialogue(store)
    root = await dialogue.begin()
    version = await dialogue.add(root, f'{{"data":"{asset.digest}"}}'.encode(), commit={'assets': [asset, other]})
    await store.gc(0)
    assert await store.has_assets([asset.digest, other.digest]) == {asset.digest}

    await store.delete_line(version.id)
    await store.gc(0)
    assert await store.has_assets([asset.digest]) == set()
    assert await rows_of(store, 'reference') == 0


async def test_reference_to_missing_contents_names_them(store: SqlStore) -> None:
    run, missing = sample_run('c'), sample_asset(b'missing').digest
    with pytest.raises(AssetNotFoundError, match=missing):
        await store.commit(Commit(runs=[run], requests=[sample_request(run.id)._replace(parameters=missing)]))
    assert await store.runs() == []
