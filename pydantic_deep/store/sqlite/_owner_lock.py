"""Liveness of stores: each open store holds a lock on a file of its own, which the kernel releases when its process
ends.

The files are in `FILE.owners` beside the database. No clock is involved: `kill -9` releases a lock at once, and a
process that is stopped for an hour retains it. A child that was forked without `exec` shares the lock of its parent.
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
"""Another process has removed the file or is checking it (Windows cannot remove an open file); the next sweep removes
it.
"""


class OwnerWatch:
    """Checks which owners are alive without being one, for a read-only store."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.owner = secrets.token_hex(8)
        """Name of this open store, which owns no runs."""

    def living(self, owners: Sequence[str]) -> set[str]:
        """Return the owners that are alive."""
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
    """The lock of one open store. Opening it removes the files of crashed owners."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        directory.mkdir(mode=0o700, exist_ok=True)
        self._sweep()
        self._descriptor = self._acquire()

    def release(self) -> None:
        """Release the lock, which ends this owner's liveness."""
        os.close(self._descriptor)
        with suppress(*_IN_USE):
            (self._directory / self.owner).unlink()

    def _acquire(self) -> int:
        """Create and lock our file; retry if another process removed it in between."""
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
