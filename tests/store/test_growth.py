"""The cost of operations in bytes, rows and statements depends on new data, not on the size of the store."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from pydantic_deep.store import Commit, SqlStore, VersionRecord, open_store
from pydantic_deep.store._samples import Dialogue, sample_call, sample_request, sample_run
from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.memory import MemoryEngine

pytestmark = pytest.mark.anyio

T = TypeVar('T')


class CountedEngine(MemoryEngine):
    """In-memory engine that counts statements."""

    statements = 0

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        return await super().write(lambda: self._counted(operation))

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        return await super().read(lambda: self._counted(operation))

    def _counted(self, operation: Callable[[], Operation[T]]) -> Operation[T]:
        inner = operation()
        statement: Statement = next(inner)
        while True:
            type(self).statements += 1
            rows: list[Row] = yield statement
            try:
                statement = inner.send(rows)
            except StopIteration as stop:
                return stop.value

    @classmethod
    def take(cls) -> int:
        """Return the number of statements since the last call."""
        count, cls.statements = cls.statements, 0
        return count


@pytest.fixture
async def store() -> AsyncGenerator[SqlStore]:
    async with SqlStore(CountedEngine.open()) as store:
        yield store


def body(number: int) -> bytes:
    """Return a message of 600 bytes that is hard to compress."""
    return b'{"text":"%s"}' % random.Random(number).randbytes(300).hex().encode()


async def grow(dialogue: Dialogue, version: VersionRecord, turns: int) -> VersionRecord:
    for number in range(turns):
        version = await dialogue.add(version, body(2 * number), body(2 * number + 1))
    return version


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


@pytest.mark.parametrize('what', ['turn', 'lineage', 'page', 'history', 'gc'])
async def test_number_of_statements_does_not_grow_with_the_store(store: SqlStore, what: str) -> None:
    dialogue = Dialogue(store)
    version = await grow(dialogue, await dialogue.begin(), 10)
    await store.versions(limit=1)  # the first list counts all rows
    taken: list[int] = []
    for _ in range(2):
        CountedEngine.take()
        if what == 'turn':
            version = await grow(dialogue, version, 1)
        elif what == 'lineage':
            await store.lineage(version.id)
        elif what == 'page':
            await store.versions(limit=5)
        elif what == 'history':
            await store.messages(version.branch_id, version.message_count)
        else:
            report = await store.gc(0)
            assert not any(report.removed.values())
        taken.append(CountedEngine.take())
        version = await grow(dialogue, version, 90)
    assert taken[0] == taken[1]


async def test_integrity_checks_need_no_extra_queries(store: SqlStore) -> None:
    """Seals and counts are read together with their rows, so each of these reads is one statement. Only the first list
    of a table counts all its rows, once per open store.
    """
    dialogue = Dialogue(store)
    run = sample_run(dialogue.id)
    root = await dialogue.begin()
    version = await dialogue.add(
        root, body(1), body(2), commit={'runs': [run], 'requests': [sample_request(run.id)], 'calls': [sample_call(run.id, 'r', 'c')]}
    )  # fmt: skip
    CountedEngine.take()
    for _ in range(2):
        await store.runs()
        await store.versions(limit=1)
        await store.conversations()
    assert CountedEngine.take() == 2 * 3 + 5
    for read in (
        store.messages(version.branch_id, version.message_count),
        store.requests(run.id),
        store.calls([run.id]),
        store.runs(conversation_id=dialogue.id),
        store.branches(dialogue.id),
        store.versions(limit=2),
        store.conversations(),
    ):
        CountedEngine.take()
        assert await read
        assert CountedEngine.take() == 1


async def test_page_of_versions_is_read_without_sorting(tmp_path: Path) -> None:
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        dialogue = Dialogue(store)
        await grow(dialogue, await dialogue.begin(), 3)
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        plan = raw.execute('EXPLAIN QUERY PLAN SELECT id FROM version ORDER BY number DESC LIMIT 100').fetchall()
    assert not [row for row in plan if 'TEMP B-TREE' in row[3]]


async def test_call_arguments_are_compressed(tmp_path: Path) -> None:
    arguments = '{"content":"%s"}' % ('the same line again\\n' * 200)
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        dialogue = Dialogue(store)
        await dialogue.begin()
        run = sample_run(dialogue.id)
        call = sample_call(run.id, 'response', 'call', arguments=arguments)
        await store.commit(Commit(runs=[run], calls=[call]))
        assert await store.calls([run.id]) == [call]
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        kept = raw.execute('SELECT LENGTH(arguments) FROM tool_call').fetchall()
    assert kept[0][0] < len(arguments) / 10
