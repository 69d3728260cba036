"""`SandboxBackend`: the files of one directory, and commands that cannot reach anything else.

```
file operations   those of LocalBackend: by descriptors, never through a shell (`local`)
commands          under bubblewrap, in their own namespaces (_bwrap), with filtered system calls (_seccomp), within
                  limits (_limits, _cgroups, _disk_usage); tested before the first one (_isolation_check)
```
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from pydantic_deep_backends._checks import check_flags, check_names
from pydantic_deep_backends._threads import run_to_completion
from pydantic_deep_backends.commands._execution import (
    Execution,
    RunningCommand,
    arguments_of,
    check_env,
    check_timeout,
    run_execution,
)
from pydantic_deep_backends.errors import SandboxUnavailableError
from pydantic_deep_backends.files._confined_root import Components
from pydantic_deep_backends.local import LocalBackend
from pydantic_deep_backends.paths import parse_path, path_parts
from pydantic_deep_backends.protection import PROTECTED_FILES
from pydantic_deep_backends.protocol import BackendRef, Command, CommandResult

from ._bwrap import INSTALL, WORKSPACE, Mounts, SandboxPlan, start_in_sandbox
from ._cgroups import find_controllers
from ._disk_usage import DiskUsageRecord, DiskWatch
from ._isolation_check import check_isolation
from ._limits import SandboxLimits

_BASE_ENV = {'PATH': '/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin', 'HOME': '/tmp', 'LANG': 'C.UTF-8'}  # noqa: S108 - of the sandbox
"""Environment variables of every command."""

_RESERVED_NAMES = frozenset(path_parts(WORKSPACE)) | {
    'bin',
    'dev',
    'lib',
    'lib32',
    'lib64',
    'libx32',
    'proc',
    'sbin',
    'tmp',
    'usr',
}
"""Top-level names in a sandbox at which nothing can be mounted."""

_WATCH_SECONDS = 0.1
"""Seconds between two disk checks while a command runs: a fast disk writes a few hundred megabytes in between."""

MAX_MOUNTS = 128
"""Maximum number of protected paths to mount: each adds a millisecond or more to the start of each command."""

_MAX_PATH_BYTES = 3_000
"""Maximum length of a path to mount. The kernel accepts 4,096 bytes, including the path of the directory itself."""

_ATTEMPTS = 5
"""Maximum number of attempts to create a sandbox while other commands move the directories of protected files."""


class SandboxBackend(LocalBackend):
    """A directory that is mounted at `/workspace`, for file operations and commands alike. Linux only.

    File operations are those of `LocalBackend`. They never run a command, and nothing that a command leaves behind
    (links, devices, unreadable modes) can lead them outside.

    A command sees the workspace, `/usr` and a few files of `/etc` of the host (read-only), its own `/tmp` and
    `/dev/shm`, its own processes and no network. It has no capabilities and cannot gain any, dangerous system calls are
    denied, and the limits apply. When it ends, exceeds its timeout, or the caller is cancelled, all processes that it
    started are killed, however they were detached. It has only the environment variables of the configuration and the
    call.

    Before the first command of a process, and before `working_dir` returns, each guarantee is tested. If one does not
    hold, no command runs.

    Limitations:

    - Secrets below `/usr` and in mounted paths can be read.
    - The size of the workspace is checked several times a second, so a command can exceed it between two checks.
    - Only root can usually create control groups. Without them, the memory limit applies to each process, so all
      together can use `processes` times `memory_bytes`. CPU time is not distributed fairly.
    - A command can connect to a Unix socket in the workspace.
    - `/proc/mountinfo` reveals the location of the workspace on the host.
    - A vulnerable kernel stays vulnerable.
    - With `network=True`, commands can reach everything that this machine can reach, including its own loopback
      services.

    Args:
        root: The directory; it must exist.
        bwrap: The bubblewrap program, 0.8 or newer; `None` for the one on the `PATH`.
        network: Whether commands share the network of the host.
        env: Names of environment variables that commands inherit from this process, or variables with their values.
        read_only: Host paths to mount read-only for commands, keyed by their path in the sandbox. File operations do
            not see them.
        limits: Resource limits of each command.
        protected: Patterns of protected files, as in `PROTECTED_FILES`; `()` for none. Commands see existing ones
            read-only and cannot move them; at most `MAX_MOUNTS` paths, those of git and the ones closest to the root
            first. `protected_files` reports protected files that a command creates.
        allow_hard_links: Whether file operations read files with another hard link outside of the directory.

    Raises:
        InvalidPathError: A path in the sandbox is malformed.
        ValueError: A path in the sandbox is reserved, or a host path is not absolute or has a NUL.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        bwrap: str | os.PathLike[str] | None = None,
        network: bool = False,
        env: Sequence[str] | Mapping[str, str] = (),
        read_only: Mapping[str, str | os.PathLike[str]] | None = None,
        limits: SandboxLimits | None = None,
        protected: Sequence[str] = PROTECTED_FILES,
        allow_hard_links: bool = False,
    ) -> None:
        super().__init__(root, protected=protected, allow_hard_links=allow_hard_links)
        check_flags(network=network)
        if not isinstance(env, Mapping):
            check_names('env', env)
        if not isinstance(cast('object', read_only), Mapping | None):
            raise TypeError(f"`read_only` is {read_only!r}. Pass a mapping: `{{'/data': '/srv/data'}}`.")
        if not isinstance(cast('object', limits), SandboxLimits | None):
            raise TypeError(f'`limits` is {limits!r}. Pass `SandboxLimits(…)`.')
        self._bwrap = None if bwrap is None else os.fspath(bwrap)
        self._network = network
        self._env = check_env(env) if isinstance(env, Mapping) else tuple(env)
        self._read_only = tuple(sorted(_mount(path, host) for path, host in (read_only or {}).items()))
        self._limits = limits or SandboxLimits()
        self._tested_plan: SandboxPlan | None = None
        self._disk_usage = DiskUsageRecord()

    def __repr__(self) -> str:
        return f'SandboxBackend({self._configured_root!r})'

    @property
    def ref(self) -> BackendRef:
        """The real path of the directory. Not equal to that of a `LocalBackend`, as the paths of its files differ."""
        return BackendRef(provider='sandbox', id=self._root().path)

    def path_of(self, host_path: str | os.PathLike[str]) -> str | None:
        """Return the path at which commands see a host path, in the workspace or a mount; `None` if they do not see it.

        Touches the disk, to resolve links.
        """
        real = Path(os.path.realpath(host_path))
        shown = [(WORKSPACE, self._root().path), *self._read_only]
        for path, host in shown:
            top = os.path.realpath(host)
            if real.is_relative_to(top):
                return str(Path(path, real.relative_to(top)))
        return None

    async def working_dir(self) -> str:
        """Return the path of the directory for commands and file operations, after the isolation has been tested.

        Callers that ask for it first, such as a run of an agent, fail here instead of at their first command.

        Raises:
            SandboxUnavailableError: Commands cannot be isolated here.
            BackendUnavailableError: The directory does not exist.
        """
        await self._plan()
        return await super().working_dir()

    async def run(
        self,
        command: Command,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command in the workspace, isolated, with an empty standard input.

        Args:
            command: An argument list, or a shell string with `shell=True`.
            shell: Whether a shell interprets `command`.
            env: Environment variables to add to those of the backend.
            timeout: Seconds, positive and finite; capped by the limits.

        Returns:
            The exit code (negative for a signal, 127 for a missing program) and the output. A command that exceeds the
            disk limits is killed by a signal, and standard error reports it.

        Raises:
            TypeError: A string without `shell=True`, or an argument list with it.
            CommandTimeoutError: The command exceeded the timeout; its whole process tree has been killed.
            SandboxUnavailableError: The command cannot be isolated here; nothing was run.
            BackendUnavailableError: The directory does not exist, or was removed before the command ended.
        """
        arguments = arguments_of(command, shell=shell)
        variables = self._variables() | check_env(env or {})
        seconds = min(check_timeout(timeout) or math.inf, self._limits.timeout_seconds)
        plan = await self._plan()
        root = self._root()
        watch = DiskWatch(root, self._limits, self._disk_usage)

        def start() -> RunningCommand:
            self._check_root()
            watch.begin()
            for _ in range(_ATTEMPTS - 1):  # another command may move or remove the paths to mount after the scan
                with suppress(SandboxUnavailableError):
                    return start_in_sandbox(plan, root.path, arguments, variables, self._mounts())
            return start_in_sandbox(plan, root.path, arguments, variables, self._mounts())

        execution = Execution(
            start=start,
            check=self._check_root,
            output_bytes=self._limits.output_bytes,
            timeout_seconds=seconds,
            watch=watch,
            watch_seconds=_WATCH_SECONDS,
        )
        with self._recording_all():
            return await run_execution(execution)

    def in_directory(self, root: str | os.PathLike[str]) -> SandboxBackend:
        """Return a sandbox of another directory with the same settings; its isolation is not tested again."""
        read_only = dict(self._read_only)
        other = SandboxBackend(
            root,
            bwrap=self._bwrap,
            network=self._network,
            env=self._env,
            read_only=read_only,
            limits=self._limits,
            protected=self.protected,
            allow_hard_links=self._allow_hard_links,
        )
        other._tested_plan = self._tested_plan
        return other

    async def _plan(self) -> SandboxPlan:
        """Return the configuration of the sandboxes; the first call tests the isolation."""
        return self._tested_plan or await run_to_completion(self._test_plan)

    def _test_plan(self) -> SandboxPlan:
        self._check_root()
        for path, host in self._read_only:
            if not Path(host).exists():
                raise SandboxUnavailableError(
                    f'{host!r} does not exist, so it cannot be mounted at {path!r}. Create it.'
                )
        bwrap = self._bwrap or shutil.which('bwrap')
        if bwrap is None:
            raise SandboxUnavailableError(f'There is no `bwrap` on the PATH. {INSTALL}.')
        plan = SandboxPlan(
            bwrap=bwrap,
            network=self._network,
            read_only=self._read_only,
            limits=self._limits,
            controllers=find_controllers(),
        )
        check_isolation(plan)
        self._tested_plan = plan
        return plan

    def _mounts(self) -> Mounts:
        """Return the paths of the workspace to mount again, so that commands cannot change or move them."""
        with self._root().open() as root:
            scan = self._scan_protected(root, lambda: None)
        paths = [path for path in (*scan.pinned, *scan.read_only) if len(os.fsencode('/'.join(path))) < _MAX_PATH_BYTES]
        paths = paths[:MAX_MOUNTS]
        pinned = {*scan.pinned}
        return tuple(('/'.join(path), path not in pinned) for path in paths)

    def _check_root(self) -> None:
        """Raise `BackendUnavailableError` if the directory does not exist."""
        with self._root().open():
            pass

    def _variables(self) -> dict[str, str]:
        if isinstance(self._env, dict):
            return _BASE_ENV | self._env
        return _BASE_ENV | {name: os.environ[name] for name in self._env if name in os.environ}

    _aliases = (WORKSPACE,)

    def _mount_parts(self) -> Components:
        return path_parts(WORKSPACE)


def _mount(path: str, host: str | os.PathLike[str]) -> tuple[str, str]:
    """Return a validated mount. Raises `ValueError` if it is impossible."""
    path, host = parse_path(path), Path(host)
    top = next(iter(path_parts(path)), '')
    if not top or top in _RESERVED_NAMES:
        raise ValueError(
            f'Nothing can be mounted at {path!r}. Choose a path outside of {", ".join(sorted(_RESERVED_NAMES))}.'
        )
    if not host.is_absolute():
        raise ValueError(f'The host path {str(host)!r} is relative. Pass an absolute one.')
    if '\0' in str(host):
        raise ValueError(f'The host path {str(host)!r} has a NUL, which no path can have. Leave it out.')
    return path, str(host)
