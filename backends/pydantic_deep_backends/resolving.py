"""Where a path that somebody typed leads, relative or with `..`: to be asked before anything is decided about it.

```
absolute_path    as the operations of a backend take the path: each directory before `..` must exist
canonical_path   as rules are matched against it: links are resolved too, and nothing need exist
```
"""

from __future__ import annotations

from ._dotdot import resolve_dotdot_async, resolve_dotdot_strict
from .paths import resolve_path
from .protocol import BackendProtocol

__all__ = ['absolute_path', 'canonical_path']


async def absolute_path(backend: BackendProtocol, path: str, *, directory: str | None = None) -> str:
    """Return the absolute path without `..` that a path means; links after the last `..` are not followed.

    Args:
        backend: Whose files these are.
        path: An absolute or a relative path.
        directory: Where relative paths start; the working directory of the backend if `None`.

    Raises:
        InvalidPathError: The path is malformed, or leads above `/`.
        FileNotFoundError: What is before a `..` does not exist.
        NotADirectoryError: It is no directory.
        OutsideRootError: It is a link that leads outside.
    """
    return await resolve_dotdot_strict(backend, await _absolute(backend, path, directory))


async def canonical_path(backend: BackendProtocol, path: str, *, directory: str | None = None) -> str:
    """Return the canonical path that a path means, as `realpath` does; what does not exist is kept as written.

    Args:
        backend: Whose files these are.
        path: An absolute or a relative path.
        directory: Where relative paths start; the working directory of the backend if `None`.

    Raises:
        InvalidPathError: The path is malformed, or leads above `/`.
        OutsideRootError: A link leads outside.
    """
    return await backend.realpath(
        await resolve_dotdot_async(await _absolute(backend, path, directory), backend.realpath)
    )


async def _absolute(backend: BackendProtocol, path: str, directory: str | None) -> str:
    return resolve_path(path, await backend.working_dir() if directory is None else directory, climbs=True)
