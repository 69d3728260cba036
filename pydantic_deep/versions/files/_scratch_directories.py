"""Directories for views. Each belongs to one process while it works there, and its name can be reused later.

Messages and pending calls contain paths of a view, so a later turn from there needs the same paths. The owner of a
directory holds a lock on it (`flock`), which ends with the process; directories of crashed processes are removed.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = 'pydantic-deep-view-'

_NAME = re.compile(rf'{_PREFIX}[a-z0-9_]{{8}}')
"""The names that `tempfile.mkdtemp` creates with the prefix."""


_ATTEMPTS = 20
"""Maximum number of directories to create until one can be locked."""


class Scratch:
    """Creates the directories of one view, below a directory that is created on first use.

    Args:
        parent: The parent directory; by default that for temporary files of the system.
        name: The name to reuse, if any. It comes from a store, so it may be any text.
    """

    def __init__(self, parent: str | os.PathLike[str] | None, name: str | None) -> None:
        self._parent = Path(parent or tempfile.gettempdir())
        self._wanted = name
        self._path: Path | None = None
        self._lock = -1
        self._count = 0

    @property
    def name(self) -> str | None:
        """The name with which the same directory can be reused; `None` before first use."""
        return None if self._path is None else self._path.name

    def make_directory(self) -> Path:
        """Create and return an empty directory. Raises `OSError` if none can be created."""
        if self._path is None:
            self._path, self._lock = self._reserve()
        self._count += 1
        directory = self._path / str(self._count)
        directory.mkdir()
        return directory

    def remove(self) -> None:
        """Remove all directories. A second call does nothing."""
        if self._path is not None:
            _remove(self._path, self._lock)
            self._path = None

    def _reserve(self) -> tuple[Path, int]:
        """Create and lock a directory, with the wanted name if it is free."""
        sweep(self._parent)
        if self._wanted is not None and _NAME.fullmatch(self._wanted):
            path = self._parent / self._wanted
            with suppress(FileExistsError):  # another process uses it
                path.mkdir(mode=0o700)
                if (lock := lock_directory(path)) is not None:
                    return path, lock
        for _ in range(_ATTEMPTS):  # another process may sweep the directory before it is locked
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))
            if (lock := lock_directory(path)) is not None:
                return path, lock
            with suppress(OSError):
                path.rmdir()
        raise OSError(
            errno.ENOLCK, 'Directories cannot be locked here. Set TMPDIR to one on a local disk', str(self._parent)
        )


def sweep(parent: Path) -> None:
    """Remove the directories of this user's crashed processes, as far as they are visible."""
    with suppress(OSError):
        for path in parent.iterdir():
            if _NAME.fullmatch(path.name) and (lock := lock_directory(path)) is not None:
                _remove(path, lock)


def lock_directory(path: Path) -> int | None:
    """Return a lock on a directory of this user; `None` if it is locked by another process, or missing."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and os.path.samestat(status, path.stat()):
            return descriptor
    os.close(descriptor)
    return None


def _remove(path: Path, lock: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)
