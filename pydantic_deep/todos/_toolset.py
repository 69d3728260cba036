"""What the model may call: `write_todos`, and the list that it sees.

The list lives in `deps.todos` where deps have one. On any other agent it lives in the conversation itself: it is
what the last `write_todos` call wrote, so that it is there again in the next turn and nothing else must be stored.
"""

from collections.abc import Sequence

from pydantic import TypeAdapter
from pydantic_ai import FunctionToolset, InstructionPart, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart
from typing_extensions import TypedDict

from ._render import render_todos, summarize_todos
from ._types import HasTodos, Todo, TodoStatus

TOOL_NAME = 'write_todos'


class Item(TypedDict):
    # A todo as the model writes it. No docstrings here: they would go into the schema, which each request pays for.
    content: str
    status: TodoStatus


_ARGUMENTS = TypeAdapter(dict[str, list[Item]])


def build_toolset(instructions: str, own: list[Todo] | None) -> FunctionToolset[object]:
    """Return the toolset; `own` is the list of this run where deps have none."""

    async def write_todos(ctx: RunContext[object], todos: list[Item]) -> str:
        """Replace the todo list. Send the whole list each time."""
        current = _todos_of(ctx, own)
        current[:] = [Todo(**item) for item in todos]
        return summarize_todos(current)

    async def state(ctx: RunContext[object]) -> InstructionPart:
        # Never empty: the first todos would otherwise add to the instructions, which are the start of the prefix.
        text = render_todos(_todos_of(ctx, own)) or 'none'
        return InstructionPart(f'Todos:\n{text}', name='list', on_change='append')

    toolset = FunctionToolset[object](id='todos', instructions=[instructions, state])
    toolset.add_function(write_todos, name=TOOL_NAME, metadata={'effect': 'write'})
    return toolset


def last_written(messages: Sequence[ModelMessage]) -> list[Todo]:
    """Return the todos of the last successful `write_todos` call in a history, newest first; none is an empty list."""
    succeeded: set[str] = set()
    for message in reversed(messages):
        for part in reversed(message.parts):
            if isinstance(message, ModelRequest):
                if isinstance(part, ToolReturnPart) and part.tool_name == TOOL_NAME and part.outcome == 'success':
                    succeeded.add(part.tool_call_id)
            elif isinstance(part, ToolCallPart) and part.tool_call_id in succeeded:
                return [Todo(**item) for item in _ARGUMENTS.validate_python(part.args_as_dict())['todos']]
    return []


def _todos_of(ctx: RunContext[object], own: list[Todo] | None) -> list[Todo]:
    if isinstance(ctx.deps, HasTodos):
        return ctx.deps.todos
    return own if own is not None else []
