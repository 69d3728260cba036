"""Directories for views: each belongs to one process while it works there, and its name can be had again later.

Paths of a view are in what was said and in what waits for an answer, so a turn that goes on from there wants the same
ones. Who has a directory holds a lock on it (`flock`), which ends with the process: what a dead one left is removed.
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
"""What `tempfile.mkdtemp` makes of the prefix."""


_ATTEMPTS = 20
"""How many directories are made until one can be locked."""


class Scratch:
    """Where the directories of one view are made, when the first is needed.

    Args:
        parent: Where; the directory of the system for temporary files if `None`.
        name: The name that the place had before, if it is to have it again; from a store, so it may be any text.
    """

    def __init__(self, parent: str | os.PathLike[str] | None, name: str | None) -> None:
        self._parent = Path(parent or tempfile.gettempdir())
        self._wanted = name
        self._path: Path | None = None
        self._lock = -1
        self._count = 0

    @property
    def name(self) -> str | None:
        """The name under which the same place can be had again; `None` if it was not needed."""
        return None if self._path is None else self._path.name

    def make_directory(self) -> Path:
        """Return a new empty directory. Raises `OSError` where none can be made."""
        if self._path is None:
            self._path, self._lock = self._reserve()
        self._count += 1
        directory = self._path / str(self._count)
        directory.mkdir()
        return directory

    def remove(self) -> None:
        """Remove all directories; a second call does nothing."""
        if self._path is not None:
            _remove(self._path, self._lock)
            self._path = None

    def _reserve(self) -> tuple[Path, int]:
        """Make a directory that nobody else takes, under the name that is wanted if it is free."""
        sweep(self._parent)
        if self._wanted is not None and _NAME.fullmatch(self._wanted):
            path = self._parent / self._wanted
            with suppress(FileExistsError):  # somebody works there
                path.mkdir(mode=0o700)
                if (lock := lock_directory(path)) is not None:
                    return path, lock
        for _ in range(_ATTEMPTS):  # a sweep of somebody else may come between the two
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))
            if (lock := lock_directory(path)) is not None:
                return path, lock
            with suppress(OSError):
                path.rmdir()
        raise OSError(
            errno.ENOLCK, 'Directories cannot be locked here. Set TMPDIR to one on a local disk', str(self._parent)
        )


def sweep(parent: Path) -> None:
    """Remove what dead processes of this user have left, as far as that can be seen."""
    with suppress(OSError):
        for path in parent.iterdir():
            if _NAME.fullmatch(path.name) and (lock := lock_directory(path)) is not None:
                _remove(path, lock)


def lock_directory(path: Path) -> int | None:
    """Return a lock on a directory of this user; `None` if somebody else has it, or it is gone."""
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
