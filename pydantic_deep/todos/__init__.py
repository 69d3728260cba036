"""Todos: a plan that the model writes and updates, for any pydantic-ai agent."""

from ._capability import Todos
from ._render import render_todos
from ._types import HasTodos, Todo, TodoStatus

__all__ = ('HasTodos', 'Todo', 'TodoStatus', 'Todos', 'render_todos')
