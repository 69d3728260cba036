"""Resolution of paths from user or model input, relative or with `..`. Resolve a path before any decision about it.

```
absolute_path    the path that the operations of a backend use: each directory before `..` must exist
canonical_path   the path that rules are matched against: links are resolved too, and nothing needs to exist
```
"""

from __future__ import annotations

from ._dotdot import resolve_dotdot_async, resolve_dotdot_strict
from .paths import resolve_path
from .protocol import BackendProtocol

__all__ = ['absolute_path', 'canonical_path']


async def absolute_path(backend: BackendProtocol, path: str, *, directory: str | None = None) -> str:
    """Return the absolute path without `..`; symbolic links after the last `..` are not followed.

    Args:
        backend: The backend with the files.
        path: An absolute or a relative path.
        directory: The start of relative paths; `None` for the working directory of the backend.

    Raises:
        InvalidPathError: The path is malformed, or leads above `/`.
        FileNotFoundError: The part before a `..` does not exist.
        NotADirectoryError: The part before a `..` is not a directory.
        OutsideRootError: The part before a `..` is a link that leads outside of the root.
    """
    return await resolve_dotdot_strict(backend, await _absolute(backend, path, directory))


async def canonical_path(backend: BackendProtocol, path: str, *, directory: str | None = None) -> str:
    """Return the canonical path, as `realpath` does; components that do not exist are left unchanged.

    Args:
        backend: The backend with the files.
        path: An absolute or a relative path.
        directory: The start of relative paths; `None` for the working directory of the backend.

    Raises:
        InvalidPathError: The path is malformed, or leads above `/`.
        OutsideRootError: A link leads outside of the root.
    """
    return await backend.realpath(
        await resolve_dotdot_async(await _absolute(backend, path, directory), backend.realpath)
    )


async def _absolute(backend: BackendProtocol, path: str, directory: str | None) -> str:
    return resolve_path(path, await backend.working_dir() if directory is None else directory, climbs=True)
