"""The tool `write_todos`.

The function is created once for all agents. Each run passes its own list as deps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, get_args

from pydantic import WithJsonSchema
from pydantic_ai import FunctionToolset, RunContext
from typing_extensions import TypedDict

from pydantic_deep._toolsets.tool_schema import ToolSchema

from ._render import confirm_todos
from ._types import Todo, TodoStatus

TOOL_NAME = 'write_todos'


class Item(TypedDict):
    """A todo as the model writes it."""

    content: str
    status: TodoStatus


ITEM_SCHEMA = {
    'type': 'object',
    'properties': {
        'content': {'type': 'string'},
        'status': {'type': 'string', 'enum': [*get_args(TodoStatus)]},
    },
    'required': ['content', 'status'],
}
"""The JSON schema of `Item` without titles and references, which would cost tokens in each request."""


@dataclass
class TodoList:
    """The todo list of one run."""

    todos: list[Todo]
    """The list object: that of deps, or one of the run."""
    on_write: Callable[[], None]
    """Called after the model has written the list."""


async def write_todos(ctx: RunContext[TodoList], todos: list[Annotated[Item, WithJsonSchema(ITEM_SCHEMA)]]) -> str:
    """Note a plan. This does no work. Send the whole list each time."""
    ctx.deps.todos[:] = [Todo(**item) for item in todos]
    ctx.deps.on_write()
    return confirm_todos(ctx.deps.todos)


@cache
def function_toolset() -> FunctionToolset[TodoList]:
    """Return the toolset of `write_todos`. Its deps are a `TodoList`."""
    toolset = FunctionToolset[TodoList](id='todos', schema_generator=ToolSchema)
    toolset.add_function(write_todos, name=TOOL_NAME, metadata={'effect': 'write', 'writes': 'deps', 'trusted': True})
    return toolset
