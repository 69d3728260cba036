"""The nouns of the room: a todo and its status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

TodoStatus: TypeAlias = Literal['pending', 'in_progress', 'completed']
"""How far a todo is."""


@dataclass(frozen=True, kw_only=True)
class Todo:
    """One step of a plan."""

    content: str
    """What is to be done, in the model's words."""
    status: TodoStatus = 'pending'
    """How far it is."""


@runtime_checkable
class HasTodos(Protocol):
    """Deps that hold the list. Any object with such an attribute will do."""

    todos: list[Todo]
    """The list of one user, replaced in place."""
