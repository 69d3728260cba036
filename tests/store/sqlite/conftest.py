"""Fixtures for tests of SQLite files: a store in a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pydantic_deep.store import Commit, ConversationRecord, SqlStore, new_id
from pydantic_deep.store.engine import Operation, Statement
from pydantic_deep.store.sqlite import SqliteEngine


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    async with SqlStore(await SqliteEngine.open(tmp_path / 'agents.db')) as store:
        yield store


def statement(*sql: str) -> Operation[None]:
    for each in sql:
        yield Statement(each)


def conversation() -> Commit:
    return Commit(conversations=[ConversationRecord(new_id(), 'analyst', None, 1)])
