"""An open store and other processes: one stopped during a write, and a forked child."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pydantic_deep.repository import open_repository
from pydantic_deep.store import Commit, SqlStore, Store, StoreClosedError, StoreProcessError, open_store
from pydantic_deep.store._samples import Dialogue, sample_asset, sample_run
from pydantic_deep.store.engine import Operation, Statement

from .forks import in_fork, stopped_child

pytestmark = pytest.mark.anyio


async def _stop_inside_a_write(url: str, stop: Callable[[], None]) -> None:  # pragma: no cover - in another process
    def write() -> Operation[None]:
        yield Statement('CREATE TABLE unfinished (a BIGINT)')
        stop()

    async with open_store(url) as store:
        await store.engine.write(write)


@pytest.fixture(params=['sqlite', 'postgres'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == 'sqlite':
        return f'sqlite:///{tmp_path}/agents.db'
    return str(request.getfixturevalue('postgres_url'))


async def test_process_stopped_during_a_write_does_not_block_opening_or_reading(url: str) -> None:
    """Opening and reading a store take no write lock: both work while another process holds it indefinitely."""
    async with open_store(url) as store:
        version = await Dialogue(store).begin()
    with stopped_child(partial(_stop_inside_a_write, url)):
        for read_only in (False, True):
            async with open_store(url, read_only=read_only) as store:
                assert (await store.version(version.id)) == version
                assert await store.orphans() == []


class Note(BaseModel):
    """A row."""

    id: str


async def test_repository_can_be_opened_and_read_during_a_write_of_another_process(url: str) -> None:
    """The same for a repository with an existing table."""
    async with open_store(url), open_repository(url, Note) as notes:
        await notes.upsert(Note(id='a'))
    with stopped_child(partial(_stop_inside_a_write, url)):
        async with open_repository(url, Note) as notes:
            assert await notes.get('a') == Note(id='a')


@pytest.fixture(params=['memory', 'sqlite', 'postgres'])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqlStore]:
    urls: dict[str, Callable[[], str]] = {
        'memory': lambda: 'memory:',
        'sqlite': lambda: f'sqlite:///{tmp_path}/agents.db',
        'postgres': lambda: str(request.getfixturevalue('postgres_url')),
    }
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(open_store(urls[request.param]()))


async def _use(store: Store) -> None:
    await store.count()


async def _write_much(store: Store) -> None:
    await store.commit(Commit(assets=[sample_asset(b'large ' * 10_000)]))


async def _ask_who_lives(store: Store) -> None:
    await store.orphans()


@pytest.mark.parametrize('use', [_use, _write_much, _ask_who_lives])
async def test_forked_child_that_uses_its_parents_store_gets_an_error(
    store: Store, use: Callable[[Store], Coroutine[object, object, None]]
) -> None:
    """A forked child has no threads and shares connections: its operations on the parent's store raise instead of
    hanging, closing has no effect, and the parent's store keeps working.
    """
    run = sample_run('c')
    await store.commit(Commit(runs=[run]))
    assert in_fork(partial(_try, store, use)) == 'StoreProcessError, and closed'
    assert [each.id for each in await store.runs()] == [run.id]
    assert await store.orphans() == []
    await store.commit(Commit(runs=[sample_run('c')]))


async def _try(  # pragma: no cover - in another process
    store: Store, use: Callable[[Store], Coroutine[object, object, None]]
) -> str:
    try:
        await use(store)
    except StoreProcessError as error:
        await store.aclose()
        return f'{type(error).__name__}, and closed'
    return 'no error'


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


async def test_fork_guard_names_the_owner_and_does_not_close_its_store(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates a fork by another process id, because coverage does not measure a forked child."""
    version = await Dialogue(store).begin()
    mine = os.getpid()
    with monkeypatch.context() as patch:
        patch.setattr('pydantic_deep.store._fork_guard.os.getpid', lambda: mine + 1)
        with pytest.raises(StoreProcessError, match=f'opened by process {mine}, .* child {mine + 1}'):
            await store.version(version.id)
        with pytest.raises(StoreProcessError, match='Open it again here'):
            await store.commit(Commit(assets=[sample_asset(b'x')]))
        await store.aclose()
        with pytest.raises((StoreClosedError, StoreProcessError)):
            await store.version(version.id)
    engine: Any = store.engine
    engine._is_closed = False  # in this process it was never closed
    assert await store.version(version.id) == version


async def test_named_memory_store_is_new_in_a_forked_child() -> None:
    """A forked child does not share the parent's in-memory stores: the same name opens a new, empty store."""
    async with open_store('memory:forked') as store:
        await store.commit(Commit(runs=[sample_run('c')]))

        async def count_runs() -> str:  # pragma: no cover - in another process
            async with open_store('memory:forked') as own:
                return str(len(await own.runs()))

        assert in_fork(count_runs) == '0'
        async with open_store('memory:forked') as same:
            assert len(await same.runs()) == 1
