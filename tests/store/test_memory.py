"""The store in memory: its contract, and databases that are shared by name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pydantic_deep.store import Commit, memory, new_id, open_store
from pydantic_deep.store._samples import sample_run
from pydantic_deep.store.conformance import OpenStore, StoreSuite
from tests.store.conftest import opener
from tests.store.forks import in_fork

pytestmark = pytest.mark.anyio


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


async def test_tables_of_memory_stores_are_migrated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first store of a process runs all migrations; the others copy its empty tables, and none of its rows."""
    async with open_store('memory:') as first:
        await first.commit(Commit(runs=[sample_run('c')]))

        monkeypatch.delattr(memory, 'migrate')
        async with open_store('memory:') as second:
            assert await second.runs() == []
            await second.commit(Commit(runs=[sample_run('d')]))

        assert len(await first.runs()) == 1


async def test_memory_stores_are_shared_only_by_name() -> None:
    async with (
        open_store('memory:shared') as first,
        open_store('memory:shared') as second,
        open_store('memory:') as other,
    ):
        assert await first.engine.living_owners([first.owner, second.owner, other.owner]) == {first.owner, second.owner}


class TestMemoryStore(StoreSuite):
    is_durable = False

    @pytest.fixture
    async def open_store(self) -> AsyncIterator[OpenStore]:
        async for open_one in opener(f'memory:{new_id()}'):
            yield open_one
