"""`SqlStore` in other event loops and threads, with large contents and unusual records."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pydantic_deep.store import Commit, SqlStore, Store, StoreClosedError, StoreProcessError, new_id, open_store
from pydantic_deep.store._samples import sample_asset, sample_run
from pydantic_deep.store.sqlite import SqliteEngine

pytestmark = pytest.mark.anyio


@pytest.fixture(params=['memory', 'sqlite', 'postgres'])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    urls: dict[str, Callable[[], str]] = {
        'memory': lambda: 'memory:',
        'sqlite': lambda: f'sqlite:///{tmp_path}/agents.db',
        'postgres': lambda: str(request.getfixturevalue('postgres_url')),
    }
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(open_store(urls[request.param]()))


@pytest.fixture
async def sqlite_store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with SqlStore(await SqliteEngine.open(tmp_path / 'agents.db')) as store:
        yield store


async def test_another_event_loop_reads_the_same_or_gets_an_error(store: Store) -> None:
    """A SQLite store works in every thread and event loop of its process; a PostgreSQL store raises."""
    await store.commit(Commit(runs=[sample_run('c')]))
    outcomes: list[object] = []

    def in_thread() -> None:
        try:
            outcomes.append(len(asyncio.run(asyncio.wait_for(store.runs(), 20))))
        except StoreProcessError as error:
            outcomes.append('event loop' in str(error))

    thread = threading.Thread(target=in_thread)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert outcomes == [1] or (outcomes == [True] and store.url.startswith('postgres'))


async def test_closing_a_store_in_another_thread_does_not_block_callers(tmp_path: Path) -> None:
    """Every concurrent read returns a result or raises while another thread closes the store."""
    for _ in range(5):
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_store(f'sqlite:///{tmp_path}/agents.db'))
            closing = threading.Thread(target=asyncio.run, args=[store.aclose()])
            closing.start()
            answers = await asyncio.gather(*(store.count() for _ in range(50)), return_exceptions=True)
            await asyncio.to_thread(closing.join)
            assert all(each == 0 or isinstance(each, StoreClosedError) for each in answers)


async def test_orphans_with_cyclic_parents_are_found(tmp_path: Path, sqlite_store: SqlStore) -> None:
    async with SqlStore(await SqliteEngine.open(tmp_path / 'agents.db')) as dead:
        ids = [new_id() for _ in range(3)]
        runs = [sample_run('c', id=ids[n], parent_run_id=ids[(n + 1) % 3]) for n in range(3)]
        await dead.commit(Commit(runs=runs))
    assert {run.id for run in await sqlite_store.orphans()} == set(ids)


async def test_large_commit_is_prepared_in_a_thread(sqlite_store: SqlStore) -> None:
    asset = sample_asset(b'large ' * 100_000)
    await sqlite_store.commit(Commit(assets=[asset]))
    assert (await sqlite_store.asset(asset.digest)).data == asset.data


async def test_several_assets_are_read_at_once(sqlite_store: SqlStore) -> None:
    assets = [sample_asset(b'%d' % n) for n in range(3)]
    await sqlite_store.commit(Commit(assets=assets))
    found = await sqlite_store.assets([*(each.digest for each in assets), sample_asset(b'missing').digest])
    assert {digest: each.data for digest, each in found.items()} == {each.digest: each.data for each in assets}
