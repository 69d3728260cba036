"""Types of this capability: a todo and its status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

TodoStatus: TypeAlias = Literal['pending', 'in_progress', 'completed']
"""The progress of a todo."""


@dataclass(frozen=True, kw_only=True)
class Todo:
    """One step of a plan."""

    content: str
    """The task, in the words of the model."""
    status: TodoStatus = 'pending'
    """The progress of the task."""


@runtime_checkable
class HasTodos(Protocol):
    """Deps with a todo list. Any object with this attribute matches."""

    todos: list[Todo]
    """The list of one user. It is modified in place."""
