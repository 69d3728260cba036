"""How a list of todos reads, for a model and for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ._types import Todo, TodoStatus

MARKS: dict[TodoStatus, str] = {'pending': '[ ]', 'in_progress': '[>]', 'completed': '[x]'}
"""The mark of each status, one token each."""


def render_todos(todos: Sequence[Todo]) -> str:
    """Return one line a todo, each with its mark; an empty string for no todos."""
    return '\n'.join(f'{MARKS[todo.status]} {todo.content}' for todo in todos)


def summarize_todos(todos: Sequence[Todo]) -> str:
    """Return how many todos there are and how many of them are completed, in a line."""
    done = sum(todo.status == 'completed' for todo in todos)
    return f'{len(todos)} todo{"" if len(todos) == 1 else "s"}, {done} completed'
