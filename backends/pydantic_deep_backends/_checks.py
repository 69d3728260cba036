"""Checks of the types of arguments. Pure."""

from __future__ import annotations

import os


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
        TypeError: It is a path, a class or `None`.
    """
    if backend is None or isinstance(backend, str | os.PathLike | type):
        raise TypeError(f'{backend!r} is not a backend. Pass one, such as `LocalBackend(directory)`.')
