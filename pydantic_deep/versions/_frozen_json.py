"""Immutable JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias, cast

FrozenJson: TypeAlias = 'str | int | float | bool | tuple[FrozenJson, ...] | Mapping[str, FrozenJson] | None'
"""A JSON value whose arrays are tuples and whose objects are read-only mappings."""


def freeze(value: object) -> FrozenJson:
    """Return an immutable copy of a JSON value, such as a result of `json.loads`.

    Raises:
        TypeError: The value is not JSON.
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        items = cast('Mapping[object, object]', value).items()
        return MappingProxyType({str(key): freeze(item) for key, item in items})
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in cast('Sequence[object]', value))
    raise TypeError(f'{value!r} is not a JSON value.')


def thaw(value: FrozenJson) -> object:
    """Return a mutable copy of a frozen JSON value, with lists and dictionaries."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value] if isinstance(value, tuple) else value
