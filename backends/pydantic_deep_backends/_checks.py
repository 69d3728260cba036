"""Checks of the types of arguments. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast


def check_contents(data: object) -> None:
    """Check contents before a backend writes them.

    Raises:
        TypeError: They are not bytes.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f'`data` is {type(data).__name__}. Pass bytes: encode text with `.encode()`.')


def check_backend(backend: object) -> None:
    """Check a backend on which another one works.

    Raises:
        TypeError: It is a class, or an object without the methods of a backend.
    """
    if isinstance(backend, type) or not hasattr(backend, 'working_dir'):  # a `Path` has most of the others
        raise TypeError(f'{backend!r} is not a backend. Pass one, such as `LocalBackend(directory)`.')


def check_flags(**values: object) -> None:
    """Check that each argument, by its name, is a bool: the text `'no'` would be true.

    Raises:
        TypeError: One is not.
    """
    for name, value in values.items():
        if not isinstance(value, bool):
            raise TypeError(f'`{name}` is {value!r}. Pass True or False.')


def check_names(name: str, values: object) -> None:
    """Check an argument that is a list of strings.

    Raises:
        TypeError: It is one string, whose characters would be the items, or is not a list, or an item is no string.
    """
    if isinstance(values, str):
        raise TypeError(f'`{name}` is the string {values!r}. Pass a list: `[{values!r}]`.')
    items = cast('Collection[object]', values) if isinstance(values, Collection) else [values]
    if not all(isinstance(item, str) for item in items):
        raise TypeError(f'`{name}` is {values!r}. Pass a list of strings.')
