"""Reads take few statements, and raise if a row is missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep.store import SqlStore, StoreCorruptedError, VersionFilter, new_id, open_store
from pydantic_deep.store._samples import Dialogue, sample_call, sample_request, sample_run
from pydantic_deep.store.engine import Operation, Row
from pydantic_deep.store.operations import _reads as reads
from pydantic_deep.store.operations import _runs as runs
from pydantic_deep.store.sql._keys import pack_id
from tests.store.operations.conftest import CountedEngine, body, grow

pytestmark = pytest.mark.anyio


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
        store.versions(VersionFilter(conversation_id=dialogue.id), limit=1),
        store.conversations(),
        store.version(version.id),
    ):
        CountedEngine.take()
        assert await read
        assert CountedEngine.take() == 1


async def test_versions_of_one_conversation_are_not_counted_for_all(store: SqlStore) -> None:
    """A page of the versions with certain metadata begins with a probe of their number, but not in one conversation."""
    dialogue = Dialogue(store)
    version = await grow(dialogue, await dialogue.begin(), 3)
    taken: list[int] = []
    for conversation_id in (None, dialogue.id):
        filter = VersionFilter(metadata={'owner': 'ada'}, conversation_id=conversation_id)
        await store.versions(filter)
        CountedEngine.texts.clear()
        assert await store.versions(filter) == []
        taken.append(sum('found' in text for text in CountedEngine.texts))
    assert taken == [1, 0]
    assert (
        await store.versions(VersionFilter(conversation_id=dialogue.id, agent_name=version.agent_name), limit=1)
    ) == [version]


async def test_page_of_versions_is_read_without_sorting(tmp_path: Path) -> None:
    async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
        dialogue = Dialogue(store)
        await grow(dialogue, await dialogue.begin(), 3)
    with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
        plan = raw.execute('EXPLAIN QUERY PLAN SELECT id FROM version ORDER BY number DESC LIMIT 100').fetchall()
    assert not [row for row in plan if 'TEMP B-TREE' in row[3]]


def drive(operation: Operation[Any], *answers: list[Row]) -> object:
    """Run an operation with these results of a database."""
    next(operation)
    try:
        for rows in answers:
            operation.send(rows)
    except StopIteration as stop:
        return stop.value
    raise AssertionError('The operation asks for more.')


ID = new_id()


@pytest.mark.parametrize(
    ('operation', 'table'),
    [
        (lambda: reads.version(ID), 'version'),
        (lambda: reads.lineage(ID), 'version'),
        (lambda: runs.approval(ID, 0), 'approval'),
    ],
)
def test_row_listed_only_by_its_index_is_damage(operation: Callable[[], Operation[Any]], table: str) -> None:
    with pytest.raises(StoreCorruptedError, match='it is missing, but its index lists it') as error:
        drive(operation(), [(pack_id(ID), 7)], [])
    assert (error.value.table, error.value.row) == (table, ID)
