"""The commands of `LocalBackend`: plain processes of this machine, with all rights of this process and no isolation.

A small program supervises each command (`_supervisor`), so that all its processes end with it. This costs the start of
an interpreter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic_deep_backends.errors import BackendUnavailableError
from pydantic_deep_backends.files._confined_root import ConfinedRoot
from pydantic_deep_backends.protocol import Command, CommandResult

from ._execution import Execution, RunningCommand, arguments_of, check_env, check_timeout, exit_code_of, run_execution

OUTPUT_BYTES = 1_048_576
"""Bytes to store of each output stream of a command: more than a model can read, and little for a machine."""

_INHERITED = ('PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE')
"""Environment variables that a command inherits, without which it misses the tools of the machine. No secrets."""

_SUPERVISOR = str(Path(__file__).with_name('_supervisor.py'))


def check_commands_possible() -> None:
    """Raise `BackendUnavailableError` if this system cannot kill all processes of a command."""
    if sys.platform != 'linux':
        raise BackendUnavailableError(
            f'Commands need Linux, and this is {sys.platform!r}. Leave out `allow_commands=True`.'
        )


async def run_locally(
    find_root: Callable[[], ConfinedRoot],
    command: Command,
    *,
    shell: bool,
    env: Mapping[str, str] | None,
    timeout: float | None,
) -> CommandResult:
    """Run a command in a directory.

    Args:
        find_root: Returns the directory; may touch the disk.
        command: An argument list, or a shell string.
        shell: Whether a shell interprets `command`.
        env: Environment variables to add to the inherited ones.
        timeout: Seconds; `None` for no limit.

    Raises:
        BackendUnavailableError: The directory does not exist, or was removed before the command ended.
        CommandTimeoutError: The command exceeded the timeout.
    """
    arguments = arguments_of(command, shell=shell)
    variables = {name: os.environ[name] for name in _INHERITED if name in os.environ} | check_env(env or {})

    def start() -> RunningCommand:
        with find_root().open() as root:
            return start_locally(arguments, f'/proc/self/fd/{root.descriptor}', variables)

    def check() -> None:
        with find_root().open():
            pass

    execution = Execution(start=start, check=check, output_bytes=OUTPUT_BYTES, timeout_seconds=check_timeout(timeout))
    return await run_execution(execution)


@dataclass(frozen=True, kw_only=True)
class LocalCommand:
    """A command that runs on this machine."""

    process: subprocess.Popen[bytes]
    report: int

    def kill(self) -> None:
        """Make the supervisor kill the command, even if the command has stopped its supervisor."""
        self.process.terminate()
        self.process.send_signal(signal.SIGCONT)

    def exit_code(self, report: bytes, stderr: str) -> int:
        """Return the exit code of the command, or of its supervisor if the command killed it."""
        exit_code = exit_code_of(report)
        return self.process.returncode if exit_code is None else exit_code

    def close(self) -> None:
        """Kill the processes that a killed supervisor left behind, if they are still in its session."""
        if self.process.returncode < 0:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)


def start_locally(arguments: list[str], directory: str, variables: dict[str, str]) -> LocalCommand:
    """Start a command under its supervisor."""
    report, write_end = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603 - running commands is its purpose
            [sys.executable, '-I', '-S', _SUPERVISOR, str(write_end), str(os.getpid()), *arguments],
            cwd=directory,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(write_end,),
            start_new_session=True,
        )
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(write_end)
    return LocalCommand(process=process, report=report)
