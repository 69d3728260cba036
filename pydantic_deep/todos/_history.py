"""Read the todo list from a message history: from the calls that wrote it and the notices of other changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.messages import ModelMessage

from pydantic_deep._messages.headings import TODOS_HEADING
from pydantic_deep._messages.notice import noticed
from pydantic_deep._messages.summary_metadata import CarriedOver, carried_state

from ._render import render_todos
from ._toolset import TOOL_NAME, Item
from ._types import Todo

_ARGUMENTS = TypeAdapter(dict[str, list[Item]])
_ITEMS = TypeAdapter(list[Item])

ROOM_ID = 'todos'
"""The `id` of the capability, under which a summary stores the list."""


def last_written(messages: Sequence[ModelMessage]) -> list[Todo]:
    """Return the list from the last successful `write_todos` call; empty if there is none.

    If a summary replaced that call, return the list that the summary carries over.
    """
    written = (statement for statement in _statements(messages) if not isinstance(statement, str))
    last = next(written, None)
    return _carried(messages) if last is None else last


def last_known(messages: Sequence[ModelMessage]) -> str:
    """Return the rendered list as the model knows it: from its last call, a later notice, or a summary."""
    statement = next(_statements(messages), None)
    return (
        statement
        if isinstance(statement, str)
        else render_todos(_carried(messages) if statement is None else statement)
    )


def carried_over(todos: Sequence[Todo]) -> CarriedOver:
    """Return the list and its rendering, for a summary."""
    if not todos:
        return CarriedOver(text='')
    items: list[JsonValue] = [{'content': todo.content, 'status': todo.status} for todo in todos]
    return CarriedOver(text=f'{TODOS_HEADING}\n{render_todos(todos)}', state=items)


def _carried(messages: Sequence[ModelMessage]) -> list[Todo]:
    state = carried_state(messages, ROOM_ID)
    return [] if state is None else [Todo(**item) for item in _ITEMS.validate_python(state)]


def _statements(messages: Sequence[ModelMessage]) -> Iterator[str | list[Todo]]:
    """Yield each written list and each notice, newest first."""
    succeeded: set[str] = set()
    for message in reversed(messages):
        for part in reversed(message.parts):
            match part.part_kind:  # comparing kinds is fast, and this runs for every part of a long history
                case 'tool-return':
                    if part.tool_name == TOOL_NAME and part.outcome == 'success':
                        succeeded.add(part.tool_call_id)
                case 'tool-call':
                    if part.tool_call_id in succeeded:
                        yield [Todo(**item) for item in _ARGUMENTS.validate_python(part.args_as_dict())['todos']]
                case 'system-prompt':
                    text = noticed(part, TODOS_HEADING)
                    if text is not None:
                        yield text
                case _:
                    pass
