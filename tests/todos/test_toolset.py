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
    assert returned(result.all_messages()) == [('success', 'Saved. Nothing is done yet by saving it. Now do: write')]


async def test_each_call_replaces_the_whole_list() -> None:
    deps = Tasks(todos=[Todo(content='given')])
    given = deps.todos
    model = play(write(('a', 'pending'), ('b', 'pending')), write(('b', 'completed')), write(), 'ok')
    result = await Agent(model, deps_type=Tasks, capabilities=[Todos()]).run('plan', deps=deps)
    assert [text for _, text in returned(result.all_messages())] == [
        'Saved. Nothing is done yet by saving it. Now do: a',
        'Saved. All todos are completed.',
        'Saved. The list is empty.',
    ]
    assert (deps.todos, deps.todos is given) == ([], True)


async def test_unknown_status_is_retried_and_changes_nothing() -> None:
    deps = Tasks(todos=[Todo(content='given')])
    model = play(write(('a', 'someday')), 'ok')
    result = await Agent(model, deps_type=Tasks, capabilities=[Todos()]).run('plan', deps=deps)
    assert [outcome for outcome, _ in returned(result.all_messages())] == ['retried']
    assert deps.todos == [Todo(content='given')]
