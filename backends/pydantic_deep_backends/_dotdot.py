"""Resolution of `..` in paths, for all backends.

`/link/../x` is `x` in the directory that holds what the link leads to, as in POSIX. So each directory before a `..` is
made canonical first, by the backend that holds it; its parent is then the directory above by name.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Protocol, runtime_checkable

from .errors import InvalidPathError
from .paths import parse_path, path_parts
from .protocol import FileEntryLike

_MAX_DIRECTORIES = 40
"""Different directories before `..` in one path, each of which is walked: as many as links in a path."""

_ABOVE_ROOT = 'it contains `..` that leads above `/`. Write the path from `/` without it.'


@runtime_checkable
class DirectoryResolver(Protocol):
    """The part of a backend that is needed to resolve `..`."""

    async def realpath(self, path: str) -> str:
        """Return the path with symbolic links resolved."""
        ...

    async def stat(self, path: str) -> FileEntryLike:
        """Return the metadata of a file or directory."""
        ...


def resolve_dotdot(path: str, canonical: Callable[[str], str]) -> str:
    """Return a path without its `..`.

    Args:
        path: An absolute path.
        canonical: Returns the canonical path of a directory that a `..` follows.

    Raises:
        InvalidPathError: The path is malformed, leads above `/`, or has too many `..`.
        OSError: `canonical` raised it.
    """
    if '..' not in path:
        return parse_path(path)
    steps = _steps(path)
    try:
        directory = next(steps)
        while True:
            with _refusing_above_root(path):
                found = canonical(directory)
            directory = steps.send(found)
    except StopIteration as end:
        return end.value


async def resolve_dotdot_async(path: str, canonical: Callable[[str], Awaitable[str]]) -> str:
    """Like `resolve_dotdot`, with an asynchronous `canonical`. Does not suspend if there is no `..`."""
    if '..' not in path:
        return parse_path(path)
    steps = _steps(path)
    try:
        directory = next(steps)
        while True:
            with _refusing_above_root(path):
                found = await canonical(directory)
            directory = steps.send(found)
    except StopIteration as end:
        return end.value


async def resolve_dotdot_strict(backend: DirectoryResolver, path: str) -> str:
    """Return a path without its `..`, each of which must follow a directory that exists. Operations call it first.

    Raises:
        InvalidPathError: The path is malformed, or leads above `/`.
        FileNotFoundError: What is before a `..` does not exist.
        NotADirectoryError: It is no directory.
        OutsideRootError: It is a link that leads outside.
    """
    return await resolve_dotdot_async(path, partial(_real_directory, backend))


async def _real_directory(backend: DirectoryResolver, path: str) -> str:
    real = await backend.realpath(path)
    if not (await backend.stat(real)).is_dir:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return real


def _steps(path: str) -> Generator[str, str, str]:
    """Yield the directories before `..`, take their canonical paths, and return the path without `..`."""
    known: dict[str, str] = {}
    names: list[str] = []
    is_canonical = True
    for name in path_parts(parse_path(path, climbs=True)):
        if name != '..':
            names.append(name)
            is_canonical = False
            continue
        if not is_canonical:
            directory = '/' + '/'.join(names)
            if directory not in known:
                if len(known) == _MAX_DIRECTORIES:
                    reason = f'it has `..` after more than {_MAX_DIRECTORIES} directories. Write the path without it.'
                    raise InvalidPathError(path, reason)
                known[directory] = yield directory
            names = [*path_parts(known[directory])]
            is_canonical = True
        if not names:
            raise InvalidPathError(path, _ABOVE_ROOT)
        names.pop()
    return '/' + '/'.join(names)


@contextmanager
def _refusing_above_root(path: str) -> Generator[None]:
    """Refuse a path as malformed that leads above `/` by its text, where no link can make it lead elsewhere."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        depth = 0
        for name in path_parts(path):
            depth += -1 if name == '..' else 1
            if depth < 0:
                raise InvalidPathError(path, _ABOVE_ROOT) from None
        raise
