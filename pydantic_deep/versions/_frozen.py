"""JSON that cannot be changed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

FrozenJson: TypeAlias = 'str | int | float | bool | None | tuple[FrozenJson, ...] | Mapping[str, FrozenJson]'
"""A JSON value whose arrays are tuples and whose objects are read-only mappings."""


def freeze(value: object) -> FrozenJson:
    """Return a JSON value, as `json.loads` gives it, that cannot be changed at any level.

    Raises:
        TypeError: It is no JSON value.
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return MappingProxyType({str(key): freeze(item) for key, item in value.items()})  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any JSON
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)  # pyright: ignore[reportUnknownVariableType] - any JSON
    raise TypeError(f'{value!r} is no JSON value.')


def thaw(value: FrozenJson) -> object:
    """Return plain lists and dictionaries again."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value] if isinstance(value, tuple) else value
