"""The mapping between virtual paths and the paths of mounted backends. Pure: no backend is accessed.

Mounts are found by path components, the longest first. Names are compared in Unicode's NFC, so that two spellings of a
name are one mount. Files of the underlying backend at and below a mount point are hidden.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, cast

from pydantic_deep_backends._checks import check_backend
from pydantic_deep_backends.errors import (
    FileChangedError,
    InvalidPathError,
    OutsideRootError,
    ReadOnlyError,
    ScanLimitError,
)
from pydantic_deep_backends.paths import is_within, parse_path, path_parts
from pydantic_deep_backends.protocol import BackendProtocol, FileEntry, FileEntryLike

_PathError: TypeAlias = FileChangedError | InvalidPathError | OutsideRootError | ReadOnlyError | ScanLimitError

Key: TypeAlias = tuple[str, ...]
"""The components of a path in NFC."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Mount:
    """A mounted backend and its mount point."""

    prefix: str
    """The mount point; `''` for the default backend."""
    key: Key
    """The components of the mount point in NFC, for comparison."""
    backend: BackendProtocol
    """The backend with the files."""

    def outer(self, inner: str) -> str:
        """Return the virtual path for a path of the backend."""
        return f'{self.prefix}{inner}'.rstrip('/') or '/'

    def entry(self, entry: FileEntryLike) -> FileEntry:
        """Return an entry of the backend with its virtual path."""
        path = self.outer(entry.path)
        return FileEntry(name=path.rpartition('/')[2], path=path, is_dir=entry.is_dir, size=entry.size)

    @contextmanager
    def errors(self, inner: str) -> Generator[None]:
        """Replace `inner` with its virtual path in errors."""
        try:
            yield
        except (FileChangedError, InvalidPathError, OutsideRootError, ReadOnlyError, ScanLimitError) as error:
            if not self.prefix:
                raise
            raise self._about(error) from None
        except OSError as error:
            if isinstance(error.filename, str) and is_within(inner, error.filename):
                error.filename = self.outer(error.filename)
            raise

    def _about(self, error: _PathError) -> _PathError:
        """Return the same error with its virtual path."""
        path = self.outer(error.path or '')
        match error:
            case FileChangedError():
                return FileChangedError(path, expected=error.expected, actual=error.actual)
            case InvalidPathError():
                return InvalidPathError(path, error.reason)
            case OutsideRootError():
                return OutsideRootError(path, root=None if error.root is None else self.outer(error.root))
            case ReadOnlyError():
                return ReadOnlyError(path)
            case _:
                return ScanLimitError(error.limit, error.maximum, error.advice, path=error.path and path)


class MountTable:
    """All mounts of a composite.

    Raises:
        InvalidPathError: A mount point is malformed.
        TypeError: The mounts are no mapping, or one is not a backend.
        ValueError: A mount point is `/`, or two are equal.
    """

    def __init__(self, default: BackendProtocol, mounts: Mapping[str, BackendProtocol]) -> None:
        if not isinstance(cast('object', mounts), Mapping):
            raise TypeError(f"`mounts` is {mounts!r}. Pass backends by path: `{{'/data': backend}}`.")
        for backend in (default, *mounts.values()):
            check_backend(backend)
        self.default = Mount(prefix='', key=(), backend=default)
        """The default backend, for paths outside of all mounts."""
        self._part_by_key: dict[Key, Mount] = {}
        for point, backend in mounts.items():
            path = parse_path(point)
            key = key_of(path)
            if path == '/':
                raise ValueError("'/' cannot be a mount point. Pass that backend as `default`.")
            if key in self._part_by_key:
                raise ValueError(f'{path!r} is mounted twice. Mount one backend there.')
            self._part_by_key[key] = Mount(prefix=path, key=key, backend=backend)
        self.mounted = tuple(sorted(self._part_by_key.values(), key=_depth))
        """The mounts, those with fewer components first."""
        self._max_depth = max((len(part.key) for part in self.mounted), default=0)

    @property
    def parts(self) -> tuple[Mount, ...]:
        """The default and all mounts, the default first."""
        return (self.default, *self.mounted)

    def locate(self, path: str) -> tuple[Mount, str]:
        """Return the mount that contains a canonical path, and the path in its backend."""
        key = key_of(path)
        for depth in range(min(len(key), self._max_depth), 0, -1):
            part = self._part_by_key.get(key[:depth])
            if part is not None:
                return part, '/' + '/'.join(path_parts(path)[depth:])
        return self.default, path

    def below(self, path: str) -> tuple[Mount, ...]:
        """Return the mounts below a path, without a mount at the path itself."""
        key = key_of(path)
        return tuple(part for part in self.mounted if len(part.key) > len(key) and part.key[: len(key)] == key)

    def child_names(self, path: str) -> dict[str, str]:
        """Return the names in a directory that lead to mounts, as spelled in the mount point, by their NFC."""
        depth = len(path_parts(path))
        return {part.key[depth]: path_parts(part.prefix)[depth] for part in reversed(self.below(path))}

    def is_fixed(self, path: str) -> bool:
        """Return whether a path is a mount point or leads to one. Such a path is a directory and cannot be removed."""
        return key_of(path) in self._part_by_key or bool(self.below(path))


def key_of(path: str) -> Key:
    """Return the components of a canonical path for comparison."""
    return path_parts(path if path.isascii() else unicodedata.normalize('NFC', path))


def _depth(part: Mount) -> tuple[int, Key]:
    return len(part.key), part.key
