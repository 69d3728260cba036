"""Exclusive locks on open files. The kernel releases them when the file is closed or the process ends.

They use `flock` on POSIX and `msvcrt.locking` on Windows. Both belong to an open file, so two open files in one process
also exclude each other.
"""

from __future__ import annotations

import sys

if sys.platform == 'win32':
    import msvcrt
    import time

    _ATTEMPTS = 5
    """Number of attempts. There are no shared locks here on Windows, so two simultaneous checks of a file conflict."""

    _PAUSE_SECONDS = 0.002
    """Pause between two attempts: a check takes microseconds."""

    def lock(descriptor: int) -> None:
        """Lock an open file once no check holds it. Raises `OSError` after 10 seconds."""
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)

    def is_locked(descriptor: int) -> bool:
        """Return whether a file is locked through another descriptor. Close this one afterwards."""
        for _ in range(_ATTEMPTS):
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            except OSError:
                time.sleep(_PAUSE_SECONDS)
            else:
                msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
                return False
        return True

else:
    import fcntl

    def lock(descriptor: int) -> None:
        """Lock an open file once no check holds it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def is_locked(descriptor: int) -> bool:
        """Return whether a file is locked through another descriptor. Close this one afterwards."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
