"""Todos rendered for models and people."""

from __future__ import annotations

from pydantic_deep import Todo
from pydantic_deep.todos import render_todos


def test_todos_render_with_one_mark_each() -> None:
    todos = [Todo(content='a'), Todo(content='b', status='in_progress'), Todo(content='c', status='completed')]
    assert render_todos(todos) == '[ ] a\n[>] b\n[x] c'
