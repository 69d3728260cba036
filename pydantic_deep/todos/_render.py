"""Render todo lists for models and people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ._types import Todo, TodoStatus

MARKS: dict[TodoStatus, str] = {'pending': '[ ]', 'in_progress': '[>]', 'completed': '[x]'}
"""The mark of each status. Each is one token."""


def render_todos(todos: Sequence[Todo]) -> str:
    """Return one line for each todo, with its mark; empty for an empty list."""
    return '\n'.join(f'{MARKS[todo.status]} {todo.content}' for todo in todos)


def confirm_todos(todos: Sequence[Todo]) -> str:
    """Return the result of writing a list: the next todo, because small models take a plan for the work."""
    remaining = [todo for todo in todos if todo.status != 'completed']
    if not remaining:
        return 'Saved. All todos are completed.' if todos else 'Saved. The list is empty.'
    current = next((todo for todo in remaining if todo.status == 'in_progress'), remaining[0])
    return f'Saved. Nothing is done yet by saving it. Now do: {current.content}'
