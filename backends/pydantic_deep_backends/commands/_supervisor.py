"""The supervisor program of a command of `LocalBackend`: runs it, reports its end, and kills the processes it left.

Started as `python -I -S _supervisor.py REPORT PARENT PROGRAM ARGUMENT…`, it imports nothing of the package. Orphans of
the command become children of this process (`PR_SET_CHILD_SUBREAPER`), whatever session they are in, so none is lost.
SIGTERM kills all of them, and so does the end of the thread that started this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
"""Options of prctl(2), from `linux/prctl.h`."""


_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
"""Exit codes of a shell for a program that is missing, or that cannot be executed."""

_PAUSE_SECONDS = 0.001
"""Pause before the next check for remaining processes."""


class _StopError(Exception):
    """SIGTERM was received."""


def main(report: int, parent: int, command: list[str]) -> None:
    """Run a command, report its wait status as a decimal number, and return once it and all its children have ended."""
    try:
        signal.signal(signal.SIGTERM, _stop)
        _adopt_orphans(parent)
        child = _start(command, report)
        if child is not None:
            os.write(report, b'%d' % _wait_for(child))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except _StopError:
        pass
    if _has_children():
        _end_children()


def descendants(ancestor: int) -> list[int]:
    """Return the PIDs of all descendants of a process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir('/proc'):  # noqa: PTH208 - no pathlib: it would take longer to import than to run
        if name.isdecimal():
            children.setdefault(_parent_of(name), []).append(int(name))
    pids: list[int] = []
    waiting = [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        pids += below
        waiting += below
    return pids


def _parent_of(pid: str) -> int:
    """Return the PID of the parent of a process; 0 if the process no longer exists."""
    try:
        with open(f'/proc/{pid}/stat', 'rb') as file:  # noqa: PTH123 - as above
            # The program name, in parentheses, may contain anything, so parse after the last parenthesis.
            return int(file.read().rpartition(b')')[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _has_children() -> bool:
    """Return whether any child remains. This is cheap if there is none, as after most commands."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _stop(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # nothing may interrupt the cleanup
    raise _StopError


def _adopt_orphans(parent: int) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the line above
        raise _StopError


def _start(command: list[str], report: int) -> int | None:
    """Return the PID of the command; `None` if the program cannot be started, which standard error reports."""
    os.set_inheritable(report, False)
    try:
        # Python ignores these two signals, and a command must not inherit that.
        return os.posix_spawnp(command[0], command, os.environ, setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))
    except OSError as error:
        os.write(2, f'{command[0]}: {error.strerror}\n'.encode(errors='surrogateescape'))
        os.write(report, b'%d' % ((_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE) << 8))
        return None


def _wait_for(child: int) -> int:
    """Return the wait status of the command once it has ended; orphans that end earlier are reaped."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


def _end_children() -> None:
    """Kill all descendants until none remains: a killed process cannot start another."""
    libc = ctypes.CDLL(None)
    try:
        while True:
            for pid in descendants(os.getpid()):
                libc.kill(pid, signal.SIGKILL)  # fails if the process is gone, or is not ours to kill
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(_PAUSE_SECONDS)
    except ChildProcessError:
        return


if __name__ == '__main__':
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
