"""Repair of messages with halves of surrogate pairs, which neither JSON nor requests can contain. Pure.

A server that splits a stream within a pair delivers its halves as two characters, and tools return what others wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from operator import is_
from typing import Any, Final, cast

from pydantic_ai import ToolReturn
from pydantic_ai.messages import ModelMessage
from pydantic_core import PydanticSerializationError, SchemaSerializer, core_schema, to_json

_WITHOUT_TEXT: Final = (int, float, bytes, datetime)

_LIBRARY: Final = 'pydantic_ai.'
"""The package of parts, which are visited one by one, and of media, whose data may be large."""

_SERIALIZER: Final = SchemaSerializer(core_schema.any_schema())


def join_halves(text: str) -> str:
    r"""Return a text with its surrogate pairs joined, and single halves escaped (`\ud83d`)."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode('utf-16-le', 'surrogatepass').decode('utf-16-le', 'surrogatepass')
        return joined.encode(errors='backslashreplace').decode()
    return text


class PieceJoiner:
    """Applies `join_halves` to a text that arrives in pieces."""

    def __init__(self) -> None:
        self._half = ''

    def add(self, piece: str) -> str:
        """Return the complete characters so far, without the first half of a pair that the next piece may complete."""
        if piece.isascii() and not self._half:
            return piece
        text = self._half + piece
        self._half = text[-1] if '\ud800' <= text[-1:] < '\udc00' else ''
        return join_halves(text[: len(text) - len(self._half)])

    def end(self) -> str:
        """Return what is left at the end of the text: an escaped half, or nothing."""
        rest, self._half = join_halves(self._half), ''
        return rest


def repair_result(result: object) -> object:
    """Return the result of a tool without halves: the same object if it has none. Objects become plain data."""
    if not isinstance(result, ToolReturn):
        return _joined(result)
    returned = cast('ToolReturn[object]', result)
    changed: dict[str, Any] = {
        name: joined for name, value in vars(returned).items() if (joined := _joined(value)) is not value
    }
    return replace(returned, **changed) if changed else returned


def repair(messages: Iterable[ModelMessage]) -> None:
    """Apply `join_halves` to all texts of messages, in place. Objects of tools that have halves become plain data."""
    for message in messages:
        for item in (message, *message.parts):
            for name, value in list(vars(item).items()):
                if (joined := _joined(value)) is not value:
                    setattr(item, name, joined)


def _joined(value: object) -> object:
    """Return a value without halves: the same object if it has none."""
    if isinstance(value, str):
        return join_halves(value)
    if value is None or isinstance(value, _WITHOUT_TEXT) or type(value).__module__.startswith(_LIBRARY):
        return value
    if isinstance(value, dict):
        items = cast('dict[object, object]', value)
        flat = [*items, *items.values()]
        joined = list(map(_joined, flat))
        return (
            items if all(map(is_, joined, flat)) else dict(zip(joined[: len(items)], joined[len(items) :], strict=True))
        )
    if isinstance(value, (list, tuple, set, frozenset)):
        group = cast('Collection[object]', value)
        joined = list(map(_joined, group))
        return group if all(map(is_, joined, group)) else joined
    try:
        to_json(value, fallback=repr)
    except PydanticSerializationError:
        return _joined(_SERIALIZER.to_python(value, fallback=repr))
    return value
