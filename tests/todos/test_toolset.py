"""The tool `write_todos`."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent

from pydantic_deep import Todo, Todos

from .conftest import Tasks, play, returned, write

pytestmark = pytest.mark.anyio


async def test_todos_are_stored_in_deps_that_have_them() -> None:
    deps = Tasks()
    agent = Agent(
        play(write(('read', 'completed'), ('write', 'in_progress')), 'ok'), deps_type=Tasks, capabilities=[Todos()]
    )
    result = await agent.run('plan', deps=deps)
    assert deps.todos == [Todo(content='read', status='completed'), Todo(content='write', status='in_progress')]
    assert returned(result.all_messages()) == [('success', '2 todos, 1 completed')]
