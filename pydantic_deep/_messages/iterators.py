"""Iterators in the results of tools, which can be read only once. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import is_
from typing import cast

from pydantic_ai import ToolReturn


def drained(result: object) -> object:
    """Return the result of a tool with its iterators, also nested ones, as lists: the same object if it has none.

    Raises:
        Exception: An iterator raised it.
    """
    try:
        return _drained(result)
    except RecursionError:  # serializing it fails too, with a better message
        return result


def _drained(result: object) -> object:
    match result:
        case Iterator():
            return list(map(_drained, cast('Iterator[object]', result)))
        case ToolReturn():
            returned = cast('ToolReturn[object]', result)
            value = _drained(returned.return_value)
            return returned if value is returned.return_value else replace(returned, return_value=value)
        case dict():
            items = cast('dict[object, object]', result)
            values = list(map(_drained, items.values()))
            return items if all(map(is_, values, items.values())) else dict(zip(items, values, strict=True))
        case list() | tuple():
            group = cast('list[object]', result)
            values = list(map(_drained, group))
            return group if all(map(is_, values, group)) else values
        case _:
            return result
