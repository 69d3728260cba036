"""Who is alive: each open store holds a lock on a file of its own, which the kernel frees when its process ends.

The files lie in `FILE.owners` beside the database. No clock is involved: `kill -9` frees a lock at once, and a process
that is stopped for an hour keeps it. A child that was forked without `exec` shares the lock of its parent.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ._file_lock import is_locked, lock

_IN_USE: Final = (FileNotFoundError, PermissionError)
"""Another process has removed the file, or checks it: Windows removes no open file. The next sweep gets it."""


class OwnerWatch:
    """Tells who is alive, and is nobody: for a store that is only read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.owner = secrets.token_hex(8)
        """Names this open store, which owns nothing."""

    def living(self, owners: Sequence[str]) -> set[str]:
        """Return those that are alive."""
        return {owner for owner in owners if owner == self.owner or self._is_locked(owner)}

    def release(self) -> None:
        """Do nothing: no lock is held."""

    def _is_locked(self, owner: str) -> bool:
        try:
            descriptor = os.open(self._directory / owner, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return False
        try:
            return is_locked(descriptor)
        finally:
            os.close(descriptor)


class OwnerLock(OwnerWatch):
    """The lock of one open store. Files of the dead are removed on the way."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        directory.mkdir(mode=0o700, exist_ok=True)
        self._sweep()
        self._descriptor = self._acquire()

    def release(self) -> None:
        """Be dead from now on."""
        os.close(self._descriptor)
        with suppress(*_IN_USE):
            (self._directory / self.owner).unlink()

    def _acquire(self) -> int:
        """Create and lock our file; again if somebody swept it away between the two."""
        path = self._directory / self.owner
        while True:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
            lock(descriptor)
            with suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(descriptor)):
                    return descriptor
            os.close(descriptor)

    def _sweep(self) -> None:
        for path in self._directory.iterdir():
            with suppress(*_IN_USE):
                if not self._is_locked(path.name):
                    path.unlink()
