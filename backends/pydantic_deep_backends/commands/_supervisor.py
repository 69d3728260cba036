"""The program that watches over a command of `LocalBackend`: it runs it, reports its end, and ends what it left behind.

Started as `python -I -S _supervisor.py REPORT PARENT PROGRAM ARGUMENT…`, it imports nothing of the package. Orphans of
the command become children of this process (`PR_SET_CHILD_SUBREAPER`), so that none is lost, whatever session it is
in. SIGTERM ends all of them, and so does the end of the thread that started this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
"""Both from `linux/prctl.h`."""


_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
"""The exit codes of a shell for a program that is missing, or that cannot be run."""

_PAUSE_SECONDS = 0.001
"""How long to let the killed die before looking again."""


class _StopError(Exception):
    """SIGTERM came."""


def main(report: int, parent: int, command: list[str]) -> None:
    """Run a command, report its wait status as a decimal number, and return when it and all its children are gone."""
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
    """Return the ids of all processes below one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir('/proc'):  # noqa: PTH208 - no pathlib: it would take longer to import than to run
        if name.isdecimal():
            children.setdefault(_parent_of(name), []).append(int(name))
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _parent_of(pid: str) -> int:
    """Return the id of the parent of a process; 0 if there is no such process any more."""
    try:
        with open(f'/proc/{pid}/stat', 'rb') as file:  # noqa: PTH123 - as above
            # The name of the program, in parentheses, may hold anything: what follows the last one counts.
            return int(file.read().rpartition(b')')[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _has_children() -> bool:
    """Return whether any child is left. Looking for one costs nothing where there is none, as after most commands."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _stop(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: nothing may disturb what comes now
    raise _StopError


def _adopt_orphans(parent: int) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the line above
        raise _StopError


def _start(command: list[str], report: int) -> int | None:
    """Return the id of the command's process; `None` if there is no such program, which is said on standard error."""
    os.set_inheritable(report, False)
    try:
        # Python ignores these two, and a command must not.
        return os.posix_spawnp(command[0], command, os.environ, setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))
    except OSError as error:
        os.write(2, f'{command[0]}: {error.strerror}\n'.encode(errors='surrogateescape'))
        os.write(report, b'%d' % ((_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE) << 8))
        return None


def _wait_for(child: int) -> int:
    """Return the wait status of the command, once it has ended; orphans that end before are buried."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return status


def _end_children() -> None:
    """Kill all descendants, again and again until there is none: who is killed cannot start another."""
    libc = ctypes.CDLL(None)
    try:
        while True:
            for pid in descendants(os.getpid()):
                libc.kill(
                    pid, signal.SIGKILL
                )  # fails where it is gone, or is not ours to end: then it is not waited for
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(_PAUSE_SECONDS)
    except ChildProcessError:
        return


if __name__ == '__main__':
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
