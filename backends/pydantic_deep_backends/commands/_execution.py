"""Execution of one command: its output, deadline and cancellation. The caller defines how it starts.

A dedicated thread starts the command, reads its output, and ends only when all processes that it started are gone. So
the event loop is never blocked, and no process remains when a cancelled caller resumes.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import Popen
from typing import Protocol, cast

import anyio
import anyio.to_thread

from pydantic_deep_backends.errors import CommandTimeoutError
from pydantic_deep_backends.protocol import Command, CommandResult

from ._output import CappedOutput

_READ_SIZE_BYTES = 65_536
"""Size of one read of a pipe: the capacity of a Linux pipe."""

_DRAIN_SECONDS = 2.0
"""How long to keep reading after all processes of the command are gone, if another process holds its output open."""

_MAX_REPORT_BYTES = 64
"""Maximum size of a report: several times the longest one that a supervisor writes."""

_SHELL = '/bin/sh'
"""The shell that interprets a command string."""


class RunningCommand(Protocol):
    """A running command. Its output and its report end with the last process of its tree."""

    @property
    def process(self) -> Popen[bytes]:
        """The started process, with pipes for its output: the supervisor, not the command itself."""
        ...

    @property
    def report(self) -> int:
        """A descriptor with the report of the supervisor; it is at its end once the supervisor has exited."""
        ...

    def kill(self) -> None:
        """Kill the whole process tree soon. May be called repeatedly, even after all processes have ended."""
        ...

    def exit_code(self, report: bytes, stderr: str) -> int:
        """Return the exit code after all processes have ended.

        Args:
            report: The report of the supervisor. The command may have forged it.
            stderr: Standard error.

        Raises:
            BackendUnavailableError: The command was never started.
        """
        ...

    def close(self) -> None:
        """Release the resources of the start. Called once, after all processes have ended."""
        ...


@dataclass(kw_only=True)
class Execution:
    """A command that runs once, in a thread, and can be stopped from another thread.

    Raises:
        CommandTimeoutError: By `run`, if the command exceeded its timeout.
    """

    start: Callable[[], RunningCommand]
    """Starts the command and returns it."""
    output_bytes: int
    """Bytes to store of each output stream."""
    timeout_seconds: float | None
    """Maximum run time, including the start; `None` for no limit."""
    check: Callable[[], object]
    """Called after the command has ended; raises if its result is invalid."""
    watch: Callable[[], str | None] = lambda: None
    """Called repeatedly during the run. A returned sentence kills the command and is appended to standard error."""
    watch_seconds: float = math.inf
    """Interval between two calls of `watch`."""
    ended: threading.Event = field(default_factory=threading.Event)
    """Set once all processes of the command have ended."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _wake: tuple[int, int] | None = None
    _is_stopped: bool = False

    def run(self) -> CommandResult | None:
        """Run the command to its end. Returns `None` if it was stopped before its start, when no caller awaits it."""
        with self._lock:
            if self._is_stopped:
                return None
            self._wake = os.pipe()
        try:
            return self._run(self._wake[0])
        finally:
            with self._lock:
                for descriptor in self._wake:
                    os.close(descriptor)
                self._wake = None
            self.ended.set()

    def stop(self) -> bool:
        """Kill the command soon; return whether it is running. A command that has not started never will."""
        with self._lock:
            self._is_stopped = True
            if self._wake is not None:
                os.write(self._wake[1], b'.')
            return self._wake is not None

    def _run(self, wake: int) -> CommandResult:
        begin = time.monotonic()
        started = self.start()
        reading = _OutputReader(started, wake, self.output_bytes)
        deadline = math.inf if self.timeout_seconds is None else begin + self.timeout_seconds
        try:
            self._read_to_end(reading, started, deadline)
        finally:
            started.kill()
            reading.close()
            started.process.wait()
            started.close()
        stdout, stderr = reading.stdout.text(), reading.stderr.text()
        if reading.is_late:
            raise CommandTimeoutError(
                f'The command took longer than {self.timeout_seconds:g} seconds and was ended, with all that it had '
                'started. Allow it more time, or do less at once.',
                stdout=stdout,
                stderr=stderr,
            )
        self.check()
        if reading.complaint is not None:
            return CommandResult(exit_code=-signal.SIGKILL, stdout=stdout, stderr=f'{stderr}\n[{reading.complaint}]\n')
        exit_code = started.exit_code(bytes(reading.report), stderr)
        return CommandResult(exit_code=exit_code, stdout=stdout, stderr=stderr)

    def _read_to_end(self, reading: _OutputReader, started: RunningCommand, deadline: float) -> None:
        watch_at = time.monotonic() + self.watch_seconds
        while reading.has_more():
            now = time.monotonic()
            if now >= deadline and not reading.is_killed:
                reading.is_late = True
                reading.kill(started)
            if now >= watch_at and not reading.is_killed:
                watch_at = now + self.watch_seconds
                reading.complaint = self.watch()
                if reading.complaint is not None:
                    reading.kill(started)
            until = reading.until if reading.is_killed else min(deadline, watch_at, reading.until)
            reading.read(started, None if until == math.inf else max(0.0, until - now))


class _OutputReader:
    """Reads the output and the report of a command."""

    def __init__(self, started: RunningCommand, wake: int, output_bytes: int) -> None:
        assert started.process.stdout is not None  # noqa: S101 - it was started with pipes
        assert started.process.stderr is not None  # noqa: S101
        self.stdout = CappedOutput(output_bytes)
        self.stderr = CappedOutput(output_bytes)
        self.report = bytearray()
        self.complaint: str | None = None
        self.is_late = False
        self.is_killed = False
        self.until = math.inf
        """When to stop reading open streams, which the command may have passed to another process."""
        self._files = (started.process.stdout, started.process.stderr)
        self._report = started.report
        self._wake = wake
        stdout, stderr = (file.fileno() for file in self._files)
        self._open = {stdout: self.stdout.add, stderr: self.stderr.add, started.report: self._take}
        self._selector = selectors.DefaultSelector()
        for descriptor in (*self._open, wake):
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)

    def has_more(self) -> bool:
        """Return whether there is more to read."""
        return bool(self._open) and time.monotonic() < self.until

    def kill(self, started: RunningCommand) -> None:
        """Kill the command and all processes that it started."""
        self.is_killed = True
        self.until = min(self.until, time.monotonic() + _DRAIN_SECONDS)
        started.kill()

    def read(self, started: RunningCommand, seconds: float | None) -> None:
        """Read available output, or wait for it."""
        for key, _ in self._selector.select(seconds):
            if key.fd == self._wake:
                self._selector.unregister(key.fd)
                self.kill(started)
                continue
            data = os.read(key.fd, _READ_SIZE_BYTES)
            if data:
                self._open[key.fd](data)
                continue
            self._selector.unregister(key.fd)
            del self._open[key.fd]
            if key.fd == self._report:
                self.until = min(self.until, time.monotonic() + _DRAIN_SECONDS)

    def close(self) -> None:
        """Close all streams."""
        self._selector.close()
        for file in self._files:
            file.close()
        os.close(self._report)

    def _take(self, data: bytes) -> None:
        """Append a part of the report. A forged report only misreports the command itself, and has limited length."""
        self.report += data[: _MAX_REPORT_BYTES - len(self.report)]


async def run_execution(execution: Execution) -> CommandResult:
    """Run a command. Even on cancellation, all its processes have ended when this returns."""
    # A limiter of its own: commands take long, and must not block the threads of file operations.
    try:
        result = await anyio.to_thread.run_sync(execution.run, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    finally:
        if execution.stop():
            with anyio.CancelScope(shield=True):
                await _wait(execution)
    assert result is not None  # noqa: S101 - only a stopped command has none, and then this call was cancelled
    return result


async def _wait(execution: Execution) -> None:
    try:
        await anyio.to_thread.run_sync(execution.ended.wait, limiter=anyio.CapacityLimiter(1))
    finally:
        execution.ended.wait()  # asyncio's own cancellation bypasses the shield; the end is milliseconds away


def arguments_of(command: Command, *, shell: bool) -> list[str]:
    """Return a command as an argument list.

    Raises:
        TypeError: A string without `shell`, an argument list with it, or an argument that is not a string.
        ValueError: The command is empty, or an argument has a NUL.
    """
    if isinstance(command, str):
        if not shell:
            raise TypeError(f'The command {command[:80]!r} is a string. Pass `shell=True`, or an argument list.')
        arguments = [_SHELL, '-c', command]
    elif shell:
        raise TypeError('`shell=True` is for a command that is a string. Pass one string, or leave out `shell`.')
    else:
        arguments = [*command]
    _check_arguments(arguments)
    return arguments


def _check_arguments(arguments: Sequence[object]) -> None:
    if not arguments or not arguments[0]:
        raise ValueError('The command has no program. Put its name first.')
    for argument in arguments:
        if not isinstance(argument, str):
            raise TypeError(f'The argument {argument!r} is not a string. Pass strings only.')
        if '\0' in argument:
            raise ValueError(f'The argument {argument[:80]!r} has a NUL, which no program can be given. Leave it out.')


def check_timeout(timeout: float | None) -> float | None:
    """Return a timeout. Raises `ValueError` if it is not positive and finite."""
    if timeout is not None and not 0 < timeout < math.inf:
        raise ValueError(f'`timeout` is {timeout!r}. Pass a positive, finite number of seconds, or `None`.')
    return timeout


def check_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of environment variables. Raises `TypeError` or `ValueError` for an invalid name or value."""
    for name, value in env.items():
        if not isinstance(cast('object', value), str):
            raise TypeError(f'The variable {name!r} is {value!r}. Pass a string.')
        if not name or '=' in name or '\0' in f'{name}{value}':
            raise ValueError(f'The variable {name!r} cannot be set: its name contains `=`, or its name or value a NUL.')
    return {**env}


def exit_code_of(report: bytes) -> int | None:
    """Return the exit code in a report, negative for a signal; `None` if the report has no valid one."""
    try:
        return os.waitstatus_to_exitcode(int(report))
    except (ValueError, OverflowError):
        return None
