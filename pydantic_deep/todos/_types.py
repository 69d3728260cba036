"""Types of this capability: a todo and its status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args, runtime_checkable

from pydantic_deep._checks import check_choice, check_object

TodoStatus: TypeAlias = Literal['pending', 'in_progress', 'completed']
"""The progress of a todo."""


@dataclass(frozen=True, kw_only=True)
class Todo:
    """One step of a plan."""

    content: str
    """The task, in the words of the model."""
    status: TodoStatus = 'pending'
    """The progress of the task."""

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            ValidationError: The content is no text, or there is no such status.
        """
        check_object('content', self.content, str, 'Pass the task.')
        check_choice('status', self.status, get_args(TodoStatus))


@runtime_checkable
class HasTodos(Protocol):
    """Deps with a todo list. Any object with this attribute matches."""

    todos: list[Todo]
    """The list of one user. It is modified in place."""
