"""Resolution of `..` in paths, for all backends.

As in POSIX, `/link/../x` is `x` in the parent of the directory that the link points to. So the backend canonicalizes
each directory before a `..` first; after that, its parent is the directory above by name.
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
"""Maximum number of different directories before `..` in one path, as each one is resolved. Equal to the link limit."""

_ABOVE_ROOT = 'it contains `..` that leads above `/`. Write the path from `/` without it.'


@runtime_checkable
class DirectoryResolver(Protocol):
    """The part of a backend that resolves `..`."""

    async def realpath(self, path: str) -> str:
        """Return the path with symbolic links resolved."""
        ...

    async def stat(self, path: str) -> FileEntryLike:
        """Return the metadata of a file or directory."""
        ...


def resolve_dotdot(path: str, canonical: Callable[[str], str]) -> str:
    """Return a path with every `..` resolved.

    Args:
        path: An absolute path.
        canonical: Returns the canonical path of a directory before a `..`.

    Raises:
        InvalidPathError: The path is malformed, leads above `/`, or has too many `..`.
        OSError: `canonical` raised it.
    """
    if '..' not in str(path):  # `parse_path` refuses other types
        return parse_path(path)
    steps = _steps(path)
    try:
        directory = next(steps)
        while True:
            with _refusing_above_root(path):
                resolved = canonical(directory)
            directory = steps.send(resolved)
    except StopIteration as end:
        return end.value


async def resolve_dotdot_async(path: str, canonical: Callable[[str], Awaitable[str]]) -> str:
    """Like `resolve_dotdot`, with an asynchronous `canonical`. Does not suspend if the path has no `..`."""
    if '..' not in str(path):  # `parse_path` refuses other types
        return parse_path(path)
    steps = _steps(path)
    try:
        directory = next(steps)
        while True:
            with _refusing_above_root(path):
                resolved = await canonical(directory)
            directory = steps.send(resolved)
    except StopIteration as end:
        return end.value


async def resolve_dotdot_strict(backend: DirectoryResolver, path: str) -> str:
    """Return a path with every `..` resolved. Operations call it first; each `..` must follow an existing directory.

    Raises:
        InvalidPathError: The path is malformed, or leads above `/`.
        FileNotFoundError: The part before a `..` does not exist.
        NotADirectoryError: The part before a `..` is not a directory.
        OutsideRootError: The part before a `..` is a link that leads outside of the root.
    """
    return await resolve_dotdot_async(path, partial(_real_directory, backend))


async def _real_directory(backend: DirectoryResolver, path: str) -> str:
    real = await backend.realpath(path)
    if not (await backend.stat(real)).is_dir:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return real


def _steps(path: str) -> Generator[str, str, str]:
    """Yield the directories before `..`, receive their canonical paths, and return the path without `..`."""
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
    """Report a missing directory as a malformed path if the text of the path already leads above `/`."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        depth = 0
        for name in path_parts(path):
            depth += -1 if name == '..' else 1
            if depth < 0:
                raise InvalidPathError(path, _ABOVE_ROOT) from None
        raise
