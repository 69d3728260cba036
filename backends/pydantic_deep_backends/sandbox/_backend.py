"""`SandboxBackend`: the files of one directory, and commands that cannot reach anything else.

```
file operations   as those of LocalBackend: by descriptors, never by the shell (`local`)
commands          under bubblewrap, in namespaces of their own (_bwrap), with few system calls (_seccomp), within
                  limits (_limits, _cgroups, _disk_usage); the isolation is tested before the first one (_isolation_check)
```
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

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
"""What every command has."""

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
"""The names at the top of a sandbox where nothing can be mounted."""

_WATCH_SECONDS = 0.1
"""How often the disk is looked at while a command runs: a fast disk takes a few hundred megabytes in between."""

MAX_MOUNTS = 128
"""How many protected paths are mounted at most: each takes a millisecond and more of the start of each command."""

_MAX_PATH_BYTES = 3_000
"""The longest path that is mounted. The kernel takes 4,096 bytes, with those of the directory itself."""

_ATTEMPTS = 5
"""How often a sandbox is made, if other commands move the directories of protected files meanwhile."""


class SandboxBackend(LocalBackend):
    """A directory that appears as `/workspace`, to file operations and to commands alike. Linux only.

    File operations are those of `LocalBackend`. They never go through a command, and whatever a command leaves behind
    (links to anywhere, devices, unreadable modes) leads them nowhere.

    A command sees the workspace, `/usr` and a few files of `/etc` of the host (read-only), `/tmp` and `/dev/shm` of its
    own, its own processes and no network. It has no capabilities and cannot get any, few system calls that are
    dangerous, and the limits given. When it ends, or takes too long, or the caller is cancelled, everything that it
    started is gone, however it was detached. Its variables are those given and no others.

    Before the first command of a process, and before `working_dir` tells where the directory is, each promise is tried;
    where one does not hold, no command runs.

    Not promised: secrets below `/usr` and in what is mounted can be read. The size of the workspace is looked at several
    times a second, so it can be passed by what a command writes meanwhile. Except where control groups can be made (as
    root, mostly), the memory of all processes together is `processes` times `memory_bytes`, and time on the
    processors is not shared out. A Unix socket in the workspace can be talked to. What is in `/proc/mountinfo` tells where the workspace lies on
    the host. A kernel with a hole has a hole. With `network=True` everything that this machine reaches can be reached,
    its own loopback services included.

    Args:
        root: The directory; it must exist.
        bwrap: The program bubblewrap, 0.8 or newer; the one on the `PATH` if `None`.
        network: Whether commands share the network of the host.
        env: Names of variables that commands take over from this process, or variables with their values.
        read_only: Host paths that commands see too, by their path in the sandbox. File operations do not see them.
        limits: How much each command may use.
        protected: The files that are protected, as in `PROTECTED_FILES`; `()` for none. Commands see what there is of
            them read-only, and cannot move it away; `MAX_MOUNTS` paths at most, those of git and the nearest to the
            root first. What a command makes of them anew `protected_files` tells.
        allow_hard_links: Whether file operations read files that have another name outside of the directory.

    Raises:
        InvalidPathError: A path in the sandbox is malformed.
        ValueError: A path in the sandbox is taken, or a host path is not absolute or has a NUL.
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
        self._bwrap = None if bwrap is None else os.fspath(bwrap)
        self._network = network
        self._env = check_env(env) if isinstance(env, Mapping) else _names(env)
        self._read_only = tuple(sorted(_mount(path, host) for path, host in (read_only or {}).items()))
        self._limits = limits or SandboxLimits()
        self._tried: SandboxPlan | None = None
        self._ledger = DiskUsageRecord()

    def __repr__(self) -> str:
        return f'SandboxBackend({self._given!r})'

    @property
    def ref(self) -> BackendRef:
        """The real path of the directory; not equal to that of a `LocalBackend`, whose paths mean something else."""
        return BackendRef(provider='sandbox', id=self._root().path)

    def path_of(self, host_path: str | os.PathLike[str]) -> str | None:
        """Return where commands see a path of the host: in the workspace, or where it is mounted; `None` if nowhere.

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
        """Return where commands and file operations see the directory, once it is known that commands can be isolated.

        So what begins by asking for it, as a run of an agent does, ends here and not at its first command.

        Raises:
            SandboxUnavailableError: They cannot be isolated here.
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
        """Run a command in the workspace, isolated, with standard input at its end.

        Args:
            command: An argument list, or a shell string with `shell=True`.
            shell: Whether `command` is for the shell.
            env: Variables on top of those of the backend.
            timeout: Seconds, positive and finite; never more than the limits allow.

        Returns:
            The exit code, negative for a signal, 127 for a missing program, and what was printed. A command that fills
            the disk is ended by a signal, and standard error says so.

        Raises:
            TypeError: A string without `shell=True`, or an argument list with it.
            CommandTimeoutError: It took longer; the whole process tree is gone.
            SandboxUnavailableError: It cannot be isolated here; nothing was run.
            BackendUnavailableError: The directory does not exist, or no longer.
        """
        arguments = arguments_of(command, shell=shell)
        variables = self._variables() | check_env(env or {})
        seconds = min(check_timeout(timeout) or math.inf, self._limits.timeout_seconds)
        plan = await self._plan()
        root = self._root()
        watch = DiskWatch(root, self._limits, self._ledger)

        def start() -> RunningCommand:
            self._check_root()
            watch.begin()
            for _ in range(_ATTEMPTS - 1):  # what is mounted may have been moved or removed since it was found
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
        with self._noting_all():
            return await run_execution(execution)

    def in_directory(self, root: str | os.PathLike[str]) -> SandboxBackend:
        """Return a sandbox of another directory with the same settings; what was tried is not tried again."""
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
        other._tried = self._tried
        return other

    async def _plan(self) -> SandboxPlan:
        """Return what sandboxes are like; the first time, its promises are tried."""
        return self._tried or await run_to_completion(self._try)

    def _try(self) -> SandboxPlan:
        self._check_root()
        for path, host in self._read_only:
            if not Path(host).exists():
                raise SandboxUnavailableError(f'{host!r}, which is to be mounted at {path!r}, is missing. Create it.')
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
        self._tried = plan
        return plan

    def _mounts(self) -> Mounts:
        """Return what of the workspace is mounted once more, so that commands cannot change or move it."""
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

    def _shown(self) -> Components:
        return path_parts(WORKSPACE)


def _names(env: Sequence[str]) -> tuple[str, ...]:
    if isinstance(env, str):
        raise TypeError(f'`env` is the string {env!r}. Pass a list of names, or a mapping.')
    return tuple(env)


def _mount(path: str, host: str | os.PathLike[str]) -> tuple[str, str]:
    """Return a mount as it is kept. Raises `ValueError` if it cannot be made."""
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
