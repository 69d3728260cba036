"""The cost of storing a conversation grows with its new content: bytes, commits, statements, digests."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep import StateBackend, create_deep_agent
from pydantic_deep.store import open_store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import AgentVersion, VersionedAgent
from tests.versions.conftest import MakeAgent, SpyStore
from tests.versions.recording.conftest import FILE_BYTES, TEXT_BYTES, prose, write_then_answer

pytestmark = pytest.mark.anyio


async def chat(directory: Path, id: str | None, turns: int) -> str:
    """Run some turns of a conversation in the store of a directory, and return the id of the last version."""
    async with open_store(f'sqlite:///{directory}/agents.db') as store:
        agent: VersionedAgent[Any, Any] = VersionedAgent(
            create_deep_agent(ScriptedModel(then=write_then_answer)), store
        )
        backend = StateBackend()
        version = await agent.create(backend=backend) if id is None else await agent.load(id, backend=backend)
        for _ in range(turns):
            version = await version.advance(prose(version.id, TEXT_BYTES // 2))
        return version.id


def _used_bytes(database: Path) -> int:
    """Return the used bytes of a database file: freed pages are reused before it grows."""
    with closing(sqlite3.connect(database)) as connection:
        total, free, size = (
            connection.execute(f'PRAGMA {name}').fetchone()[0] for name in ('page_count', 'freelist_count', 'page_size')
        )
    return (total - free) * size


@pytest.mark.slow
async def test_turn_with_a_file_takes_at_most_three_times_its_bytes_early_and_late(tmp_path: Path) -> None:
    """The content is in the message, in the file and in the ledger, each compressed. Hexadecimal digits compress to
    half at best, so the limit is three halves plus all overhead."""
    id, sizes = None, list[int]()
    for turns in (5, 20, 60, 20):
        id = await chat(tmp_path, id, turns)
        sizes.append(_used_bytes(tmp_path / 'agents.db'))
    early, late = sizes[1] - sizes[0], sizes[3] - sizes[2]
    assert late <= 1.2 * early
    assert early <= 3 * 20 * (TEXT_BYTES + FILE_BYTES)


async def test_late_turn_needs_as_many_commits_and_statements_as_an_early_one(make: MakeAgent, store: SpyStore) -> None:
    version: AgentVersion[Any, Any] = await make(then=write_then_answer).create()
    taken: list[tuple[int, int, int]] = []
    for _ in range(2):
        for _ in range(8):
            version = await version.advance('Go on.')
        for log in (store.commits, store.counting.reads, store.counting.writes):
            log.clear()
        version = await version.advance('Go on.')
        taken.append((len(store.commits), len(store.counting.reads), len(store.counting.writes)))
    assert taken[0] == taken[1]
    assert taken[0][0] == 3  # the start; the response, before its call runs; the end


async def test_versions_with_the_same_contents_share_them(make: MakeAgent) -> None:
    version: AgentVersion[Any, Any] = await make().create()
    for number in range(3):
        version = await version.with_metadata({'number': number})
    lineage = await version.lineage()
    assert len({id(each._loaded) for each in lineage}) == 1  # pyright: ignore[reportPrivateUsage] - that is the question


@pytest.mark.slow
def test_importing_the_package_loads_no_store_and_no_database() -> None:
    program = (
        'import sys, pydantic_deep\n'
        "heavy = ('sqlite3', 'duckdb', 'asyncpg', 'pydantic_deep.store', 'pydantic_deep.versions')\n"
        'print([name for name in heavy if name in sys.modules])\n'
        'from pydantic_deep import VersionedAgent, open_store\n'
        'print([name for name in heavy[:3] if name in sys.modules])'
    )
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)
    assert done.stdout.split('\n')[:2] == ['[]', '[]']
