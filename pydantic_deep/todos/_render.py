"""Render todo lists for models and people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ._types import Todo, TodoStatus

MARKS: dict[TodoStatus, str] = {'pending': '[ ]', 'in_progress': '[>]', 'completed': '[x]'}
"""The mark of each status. Each is one token."""


def render_todos(todos: Sequence[Todo]) -> str:
    """Return one line for each todo, with its mark; empty for an empty list."""
    return '\n'.join(f'{MARKS[todo.status]} {todo.content}' for todo in todos)


def summarize_todos(todos: Sequence[Todo]) -> str:
    """Return one line with the number of todos and of completed ones."""
    done = sum(todo.status == 'completed' for todo in todos)
    return f'{len(todos)} todo{"" if len(todos) == 1 else "s"}, {done} completed'
