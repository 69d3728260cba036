"""Immutable JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias, cast

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
        return _FrozenDict({str(key): freeze(item) for key, item in items})
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in cast('Sequence[object]', value))
    raise TypeError(f'{value!r} is not a JSON value.')


def thaw(value: FrozenJson) -> object:
    """Return a mutable copy of a frozen JSON value, with lists and dictionaries."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value] if isinstance(value, tuple) else value


class _FrozenDict(dict[str, FrozenJson]):
    """A dictionary that cannot change. Unlike a `MappingProxyType`, it can be copied, pickled and dumped as JSON."""

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError('A value of a version cannot change. Change a copy: `dict(value)`.')

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType] - raises

    def __reduce__(self) -> tuple[type[_FrozenDict], tuple[dict[str, FrozenJson]]]:
        return type(self), (dict(self),)
