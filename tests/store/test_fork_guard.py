"""A store is refused in a forked child of the process that opened it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep.store import Commit, SqlStore, Store, StoreClosedError, StoreProcessError, open_store
from pydantic_deep.store._samples import Dialogue, sample_asset, sample_run
from tests.store.forks import in_fork

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
