"""What the model may call: `write_todos`.

The function is made once for all agents; a run hands it its own list in the place of deps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from pydantic_ai import FunctionToolset, RunContext
from typing_extensions import TypedDict

from ._render import summarize_todos
from ._types import Todo, TodoStatus

TOOL_NAME = 'write_todos'


class Item(TypedDict):
    # A todo as the model writes it. No docstrings here: they would go into the schema, which each request pays for.
    content: str
    status: TodoStatus


@dataclass
class TodoList:
    """The list of one run, and what was done to it."""

    todos: list[Todo]
    """The list itself: that of deps, or one of the run's own."""
    on_write: Callable[[], None]
    """Called when the model has written the list, and so knows it."""


async def write_todos(ctx: RunContext[TodoList], todos: list[Item]) -> str:
    """Replace the todo list. Send the whole list each time."""
    ctx.deps.todos[:] = [Todo(**item) for item in todos]
    ctx.deps.on_write()
    return summarize_todos(ctx.deps.todos)


@cache
def function_toolset() -> FunctionToolset[TodoList]:
    """Return the toolset of the function above, whose deps are a `TodoList`."""
    toolset = FunctionToolset[TodoList](id='todos')
    toolset.add_function(write_todos, name=TOOL_NAME, metadata={'effect': 'write'})
    return toolset
