"""Recorded cases for the tests of evaluations."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Protocol

import pytest
from pydantic_ai import Tool

from pydantic_deep import Approve, LocalBackend, StateBackend, create_deep_agent
from pydantic_deep.evals import TurnCase, read_case, record_case, write_case
from pydantic_deep.store import Store, open_store
from pydantic_deep.testing import ScriptedModel, Step, call
from pydantic_deep.versions import VersionedAgent

POEM = 'rose\nviolet\n'
EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
PLAN = call('write_todos', todos=[{'content': 'Edit', 'status': 'completed'}])


class RecordCase(Protocol):
    """Records a turn as a case, writes it and reads it again."""

    async def __call__(
        self, *steps: Step, prompt: Any = 'Fix the poem.', name: str = 'poem', verify: bool = True, **options: Any
    ) -> TurnCase: ...


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store('memory:') as store:
        yield store


@pytest.fixture
def record(store: Store, tmp_path: Path) -> RecordCase:
    async def recorded(
        *steps: Step, prompt: Any = 'Fix the poem.', name: str = 'poem', verify: bool = True, **options: Any
    ) -> TurnCase:
        versions = VersionedAgent(create_deep_agent(ScriptedModel(*steps), **options), store)
        root = await versions.create(backend=StateBackend({'/poem.txt': POEM, '/old.txt': 'old'}))
        version = await root.advance(prompt)
        while version.pending:
            version = await version.resume({pending.id: Approve() for pending in version.pending})
        case = await record_case(versions, version.id, name=name, is_verified=verify)
        return read_case(write_case(case, tmp_path / 'evals'))

    return recorded


@pytest.fixture
def work(tmp_path: Path) -> LocalBackend:
    """A directory with one file in it."""
    directory = tmp_path / 'work'
    directory.mkdir()
    (directory / 'poem.txt').write_text(POEM)
    return LocalBackend(directory)


def reading(text: str) -> Tool[Any]:
    """Return a tool without effects, whose result is this text."""
    return Tool(lambda: text, name='look', description='Look.', metadata={'effect': 'read'})
