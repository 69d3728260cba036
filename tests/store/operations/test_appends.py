"""The cost of appended messages depends on their size, not on the size of the store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pydantic_deep.store import SqlStore, VersionRecord, open_store
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.engine import Operation, Statement
from tests.store.operations.conftest import CountedEngine, body, grow

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_late_turn_adds_as_many_bytes_as_an_early_one(tmp_path: Path) -> None:
    sizes: list[int] = []
    dialogue: Dialogue | None = None
    version: VersionRecord | None = None
    for turns in (10, 20, 370, 20):
        async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
            dialogue = Dialogue(store, dialogue.id, dialogue.branch_id) if dialogue else Dialogue(store)
            version = await grow(dialogue, version or await dialogue.begin(), turns)
        sizes.append(os.path.getsize(tmp_path / 'agents.db'))
    early, late = sizes[1] - sizes[0], sizes[3] - sizes[2]
    assert late <= 1.2 * early


async def test_turn_takes_at_most_twice_its_bytes(tmp_path: Path) -> None:
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        dialogue = Dialogue(store)
        version = await grow(dialogue, await dialogue.begin(), 20)
    before = os.path.getsize(tmp_path / 'agents.db')
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        await grow(Dialogue(store, dialogue.id, dialogue.branch_id), version, 100)
    assert os.path.getsize(tmp_path / 'agents.db') - before <= 2 * 100 * 2 * len(body(0))


async def test_fork_costs_the_same_at_any_depth(store: SqlStore, tmp_path: Path) -> None:
    dialogue = Dialogue(store)
    early = await grow(dialogue, await dialogue.begin(), 10)
    late = await grow(dialogue, early, 300)
    await grow(dialogue, late, 1)  # so that both new versions are forks
    taken: list[tuple[int, int, str]] = []
    for version in (early, late):
        before = await rows_in(store)
        CountedEngine.take()
        fork = await dialogue.add(version, b'{"a":1}', b'{"b":2}')
        taken.append((CountedEngine.take(), await rows_in(store) - before, fork.branch_id))
    assert taken[0][:2] == taken[1][:2]
    assert len({branch for *_, branch in taken} | {dialogue.branch_id}) == 3


async def rows_in(store: SqlStore) -> int:
    tables = ('message', 'entry', 'version', 'branch', 'edge', 'config', 'asset', 'node', 'reference')

    def count() -> Operation[int]:
        found = yield Statement(' UNION ALL '.join(f'SELECT COUNT(*) FROM {table}' for table in tables))
        return sum(int(str(row[0])) for row in found)

    return await store.engine.write(count)
