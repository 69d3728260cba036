"""What a history says of the todos: by the calls that wrote them, and by the notices of other changes. Pure."""

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
"""The `id` of the room, under which a summary keeps the list."""


def last_written(messages: Sequence[ModelMessage]) -> list[Todo]:
    """Return what the last `write_todos` call that succeeded has written; nothing if there is none.

    Where a summary has taken its place, it is what that carries over.
    """
    written = (said for said in _statements(messages) if not isinstance(said, str))
    last = next(written, None)
    return _carried(messages) if last is None else last


def last_known(messages: Sequence[ModelMessage]) -> str:
    """Return the list as the model knows it, rendered: by its own last call, by a later notice, or by a summary."""
    said = next(_statements(messages), None)
    return said if isinstance(said, str) else render_todos(_carried(messages) if said is None else said)


def carried_over(todos: Sequence[Todo]) -> CarriedOver:
    """Return what a summary has of a list: what the model is told, and the list."""
    if not todos:
        return CarriedOver(text='')
    items: list[JsonValue] = [{'content': todo.content, 'status': todo.status} for todo in todos]
    return CarriedOver(text=f'{TODOS_HEADING}\n{render_todos(todos)}', state=items)


def _carried(messages: Sequence[ModelMessage]) -> list[Todo]:
    state = carried_state(messages, ROOM_ID)
    return [] if state is None else [Todo(**item) for item in _ITEMS.validate_python(state)]


def _statements(messages: Sequence[ModelMessage]) -> Iterator[str | list[Todo]]:
    """Yield each list written and each notice, newest first."""
    succeeded: set[str] = set()
    for message in reversed(messages):
        for part in reversed(message.parts):
            match part.part_kind:  # by kinds: this is asked of every part of a long history
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
