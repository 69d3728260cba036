"""Garbage collection removes what nothing reaches, and nothing if rows are missing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_deep.store import StoreCorruptedError, open_store
from tests.store.damage import make_sample

pytestmark = pytest.mark.anyio


async def test_garbage_collection_is_refused_if_rows_are_missing(tmp_path: Path) -> None:
    """Targets of a missing row would look like garbage, so a collection raises and removes nothing."""
    await make_sample(tmp_path / 'agents.db')
    for statement in ('DELETE FROM reference', 'DELETE FROM entry WHERE seq = 0', 'DELETE FROM edge'):
        data = (tmp_path / 'agents.db').read_bytes()
        with closing(sqlite3.connect(tmp_path / 'agents.db')) as raw:
            assert raw.execute(statement).rowcount
            raw.commit()
        async with open_store(f'sqlite:///{tmp_path}/agents.db') as store:
            with pytest.raises(StoreCorruptedError, match='rows were written'):
                await store.gc(0)
        (tmp_path / 'agents.db').write_bytes(data)
