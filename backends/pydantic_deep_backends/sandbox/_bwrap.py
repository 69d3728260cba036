"""Execution of a command under bubblewrap: its file system, its limits, its start and its end.

```
this process ── bwrap (supervises, outside) ── perl (pid 1 of the sandbox) ── the command ── …
```
- **The first process is ours** (`init.pl`), a dozen lines of Perl, which every Debian has. bwrap's own init reports a
  signal as an exit code; ours reports it as a signal. When it ends, for whatever reason, the kernel kills all other
  processes of the sandbox, and bwrap exits after that. So once bwrap has exited, no process is left, however it was
  detached.
- **Limits are set from outside**, while the first process is blocked: `prlimit` and, if available, a control group.
- **The command line contains only the command**: bwrap reads its arguments, and the first process its environment
  variables, from anonymous files.

The file system of a sandbox contains only the paths named here. `/usr` and the usual files of `/etc` are those of the
host, read-only; users, hosts and the like are synthetic. Nothing else of the host is visible.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, cast

from pydantic_deep_backends.commands._execution import exit_code_of
from pydantic_deep_backends.errors import SandboxUnavailableError

from ._cgroups import Controllers, make_group
from ._limits import SandboxLimits
from ._perl import PERL, read_program
from ._seccomp import render_filter
from ._stale_resources import prefix_of

WORKSPACE: Final = '/workspace'
"""The path of the directory for commands."""

INSTALL: Final = 'Install it: `apt-get install bubblewrap perl-base`'
"""Advice when the sandbox cannot start."""

_USER: Final = 1000
"""User and group inside; outside it is the user of this process, so that both own the same files."""

_SEPARATION: Final = (
    '--unshare-all', '--unshare-user', '--disable-userns', '--assert-userns-disabled', '--cap-drop', 'ALL',
    '--new-session', '--die-with-parent', '--as-pid-1', '--clearenv', '--hostname', 'sandbox',
    '--uid', str(_USER), '--gid', str(_USER),
)  # fmt: skip
"""Isolation options of every sandbox; the network is shared again if enabled."""

_TOP: Final = Path('/')

_DEVICES_KIND: Final = 'devices'
"""The kind in the names of device directories, for the removal of stale ones."""

_DEVICES: Final = {'null': (1, 3), 'zero': (1, 5), 'full': (1, 7), 'random': (1, 8), 'urandom': (1, 9), 'tty': (5, 0)}
"""Devices of a sandbox and their numbers (`Documentation/admin-guide/devices.txt`)."""

_HOST_FILES: Final = (
    '/etc/alternatives', '/etc/ld.so.cache', '/etc/localtime', '/etc/mime.types', '/etc/services', '/etc/ssl/certs',
    '/etc/fonts', )  # fmt: skip
"""Files without secrets that programs of `/usr` look for in `/etc`. Each costs a third of a millisecond."""

_SYNTHETIC_FILES: Final = {
    '/etc/passwd': f'sandbox:x:{_USER}:{_USER}:sandbox:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n',
    '/etc/group': f'sandbox:x:{_USER}:\nnogroup:x:65534:\n',
    '/etc/hosts': '127.0.0.1 localhost sandbox\n::1 localhost sandbox\n',
    '/etc/nsswitch.conf': 'passwd: files\ngroup: files\nhosts: files dns\n',
}
"""Files with fixed contents in every sandbox, instead of those of the host."""

_HIDDEN_FILES: Final = ('/proc/cmdline', '/proc/key-users', '/proc/keys')
"""Files of `/proc` that reveal details of the machine and its user, and that no command needs."""

_HIDDEN_DIRECTORIES: Final = (
    '/proc/acpi', '/proc/asound', '/proc/bus', '/proc/driver', '/proc/fs', '/proc/irq', '/proc/scsi',
)  # fmt: skip
"""Directories of `/proc` in which root can change settings of the machine."""

_START_SECONDS: Final = 30.0
"""Time limit for bwrap to create a sandbox, which takes milliseconds unless the machine is overloaded."""


@dataclass(frozen=True, kw_only=True)
class SandboxPlan:
    """The common configuration of all sandboxes of one backend. Equal plans give equal guarantees."""

    bwrap: str
    """Path of the bubblewrap program."""
    network: bool
    """Whether commands have the network of the host."""
    read_only: tuple[tuple[str, str], ...]
    """Paths in the sandbox, and the host paths mounted there."""
    limits: SandboxLimits
    """Resource limits of a command."""
    controllers: Controllers
    """Directories in which control groups can be created."""


@dataclass(frozen=True, kw_only=True)
class SandboxCommand:
    """A command that runs in a sandbox."""

    process: subprocess.Popen[bytes]
    report: int
    first: int
    """A pidfd of the first process."""
    cleanup: ExitStack
    """Closes the descriptor, and removes the control group and the devices."""

    def kill(self) -> None:
        """Kill the first process; the kernel kills the others."""
        _kill(self.first)

    def exit_code(self, report: bytes, stderr: str) -> int:
        """Return the exit code of the command; that of SIGKILL if the sandbox ran out of memory."""
        if not report.startswith(b'.'):
            raise _unavailable(stderr)
        exit_code = exit_code_of(report[1:])
        return -signal.SIGKILL if exit_code is None else exit_code

    def close(self) -> None:
        """Release the resources of the start."""
        self.cleanup.close()


Mounts: TypeAlias = tuple[tuple[str, bool], ...]
"""Paths in the workspace to mount again in place, and whether read-only. A mount can be neither moved nor removed."""


class MovedMountError(SandboxUnavailableError):
    """A path of the workspace changed while it was mounted. Nothing was run, and a retry can succeed."""

    def __init__(self, path: str) -> None:
        super().__init__(f'{path!r} was moved while the sandbox was made. Run the command again.')


def start_in_sandbox(
    plan: SandboxPlan, root: str, arguments: Iterable[str], variables: Mapping[str, str], mounts: Mounts = ()
) -> SandboxCommand:
    """Start a command in a new sandbox.

    Args:
        plan: The configuration of the sandbox.
        root: The directory of the workspace.
        arguments: The command.
        variables: The complete environment.
        mounts: Paths of the workspace to mount again.

    Raises:
        MovedMountError: Another process moved one of `mounts` meanwhile.
        SandboxUnavailableError: bwrap is missing, or cannot create the sandbox.
    """
    with ExitStack() as cleanup, ExitStack() as reading, _PassedDescriptors() as passing:
        report = passing.pipe_from(reading)
        devices = make_devices()
        cleanup.callback(remove_devices, devices)
        with ExitStack() as starting:
            info = passing.pipe_from(starting)
            gate = passing.pipe_to(starting)
            process = _spawn(plan, root, devices, passing, arguments, variables, mounts)
            passing.close()
            first = _admit(plan, process, info, report, gate, cleanup, mounts)
        reading.pop_all()
        return SandboxCommand(process=process, report=report, first=first, cleanup=cleanup.pop_all())


def make_devices() -> str | None:
    """Create our own devices and return their directory; `None` if this user may not create any and needs none.

    The owner of a device can change it from inside a sandbox that it is bound into: as root, every command could change
    the mode of `/dev/null`. A user who may not create devices does not own those of the host.
    """
    directory = tempfile.mkdtemp(prefix=prefix_of(_DEVICES_KIND))
    try:
        for name, minor in _DEVICES.items():
            path = Path(directory, name)
            os.mknod(path, stat.S_IFCHR, os.makedev(*minor))
            path.chmod(0o666)
    except PermissionError:
        remove_devices(directory)
        return None
    return directory


def remove_devices(directory: str | None) -> None:
    """Remove the devices."""
    if directory is not None:
        shutil.rmtree(directory)


class _PassedDescriptors(ExitStack):
    """Descriptors passed to bwrap; closed in this process once bwrap has them."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptors: list[int] = []
        self.options: list[str] = []
        """The passed ends of pipes, as arguments, in the order of creation."""

    def file(self, data: bytes) -> str:
        """Return the descriptor of an anonymous file with the contents `data`."""
        descriptor = self._add(os.memfd_create('sandbox'))
        with open(descriptor, 'wb', closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return str(descriptor)

    def pipe_from(self, ours: ExitStack) -> int:
        """Return the read end of a pipe; the write end is passed."""
        read, write = os.pipe()
        ours.callback(os.close, read)
        self.options.append(str(self._add(write)))
        return read

    def pipe_to(self, ours: ExitStack) -> BinaryIO:
        """Return the write end of a pipe; the read end is passed."""
        read, write = os.pipe()
        self.options.append(str(self._add(read)))
        return ours.enter_context(os.fdopen(write, 'wb', buffering=0))

    def _add(self, descriptor: int) -> int:
        self.callback(os.close, descriptor)
        self.descriptors.append(descriptor)
        return descriptor


def _spawn(
    plan: SandboxPlan,
    root: str,
    devices: str | None,
    passing: _PassedDescriptors,
    arguments: Iterable[str],
    variables: Mapping[str, str],
    mounts: Mounts,
) -> subprocess.Popen[bytes]:
    report, info, gate = passing.options
    program = render_filter(os.uname().machine, network=plan.network)
    options = [
        *_SEPARATION,
        *(('--share-net',) if plan.network else ()),
        *_system(passing.file, network=plan.network),
        *_kernel_files(plan.limits.tmp_bytes, devices),
        *(option for path, host in plan.read_only for option in ('--ro-bind', host, path)),
        *('--bind', root, WORKSPACE),
        *(
            option
            for path, is_read_only in mounts
            for option in (
                '--ro-bind-try' if is_read_only else '--bind-try',
                f'{root.rstrip("/")}/{path}',
                f'{WORKSPACE}/{path}',
            )
        ),
        *('--chdir', WORKSPACE, '--remount-ro', '/'),
        *('--seccomp', passing.file(program), '--info-fd', info),
    ]
    block = b'\0'.join(os.fsencode(f'{name}={value}') for name, value in variables.items())
    init = [PERL, '-e', read_program('init.pl'), '--', passing.file(block), report, gate]
    options_file = passing.file(b''.join(os.fsencode(option) + b'\0' for option in options))
    try:
        return subprocess.Popen(  # noqa: S603 - running commands is its purpose
            [plan.bwrap, '--args', options_file, '--', *init, *arguments],
            env={},
            cwd='/',
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=passing.descriptors,
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise SandboxUnavailableError(f'{plan.bwrap!r} cannot be run: {error.strerror}. {INSTALL}.') from None


def _system(file: Callable[[bytes], str], *, network: bool) -> Iterator[str]:
    """Yield the options for the programs of the host and the files of `/etc` that they need."""
    yield from ('--ro-bind', '/usr', '/usr')
    for name in ('bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'):
        path = _TOP / name
        if path.is_symlink():
            yield from ('--symlink', str(path.readlink()), f'/{name}')
        elif path.is_dir():
            yield from ('--ro-bind', str(path), f'/{name}')
    for path in (*_HOST_FILES, *(('/etc/resolv.conf',) if network else ())):
        yield from ('--ro-bind-try', path, path)
    for path, text in _SYNTHETIC_FILES.items():
        yield from ('--perms', '0444', '--file', file(text.encode()), path)


def _kernel_files(tmp_bytes: int, devices: str | None) -> Iterator[str]:
    """Yield the options for in-memory file systems: `/proc`, `/dev` and temporary files."""
    yield from ('--proc', '/proc', '--ro-bind', '/proc/sys', '/proc/sys')
    directories, files = _hidden()
    for path in directories:
        yield from ('--perms', '0555', '--tmpfs', path, '--remount-ro', path)
    for path in files:
        yield from ('--ro-bind', '/dev/null', path)
    yield from ('--dev', '/dev')
    if devices is not None:
        for name in _DEVICES:
            yield from ('--dev-bind', f'{devices}/{name}', f'/dev/{name}')
    memory = ('--perms', '1777', '--size', str(tmp_bytes), '--tmpfs')
    yield from (*memory, '/dev/shm', '--remount-ro', '/dev', *memory, '/tmp')  # noqa: S108 - those of the sandbox


@functools.cache
def _hidden() -> tuple[list[str], list[str]]:
    """Return the directories and files of `/proc` to hide in a sandbox.

    The user of a sandbox is the user of this process outside. So root, although without capabilities in the sandbox,
    owns the files that only their owner may read or write. All of them are hidden.
    """
    files = [path for path in _HIDDEN_FILES if Path(path).exists()]
    if os.geteuid() != 0:
        return [], files
    for entry in os.scandir('/proc'):
        if entry.is_file(follow_symlinks=False):
            mode = entry.stat().st_mode
            if mode & stat.S_IWUSR or not mode & stat.S_IROTH:
                files.append(entry.path)
    return [path for path in _HIDDEN_DIRECTORIES if Path(path).is_dir()], sorted({*files})


def _admit(
    plan: SandboxPlan,
    process: subprocess.Popen[bytes],
    info: int,
    report: int,
    gate: BinaryIO,
    cleanup: ExitStack,
    mounts: Mounts,
) -> int:
    """Set the limits of the first process, which is blocked, and let it start; return a pidfd of it."""
    import resource  # missing on Windows

    first: int | None = None
    try:
        pid = _first_process(info)
        first = os.pidfd_open(pid)
        cleanup.callback(os.close, first)
        for kind, value in plan.limits.of_process().items():
            most = resource.prlimit(pid, kind)[1]
            value = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.prlimit(pid, kind, (value, value))
        group = make_group(plan.controllers, processes=plan.limits.processes, memory_bytes=plan.limits.memory_bytes)
        cleanup.callback(group.remove)
        group.add(pid)
        _wait(report)
        if os.read(report, 1) != b'!':
            raise ChildProcessError(errno.ECHILD, 'bwrap exited before the command started')
        if mounts:
            _check_mounts(Path(f'/proc/{pid}/mountinfo').read_bytes(), mounts)
        gate.write(b'.')
    except BaseException as error:
        gate.close()  # so that nothing runs, however far the first process has come
        if first is not None:
            _kill(first)
        process.kill()
        stderr = process.communicate()[1].decode(errors='replace')
        if isinstance(error, OSError):
            raise _unavailable(stderr or str(error)) from error
        raise
    return first


def _kill(first: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(first, signal.SIGKILL)


def _first_process(info: int) -> int:
    """Return the PID of the first process, as reported by bwrap."""
    text = b''
    while b'}' not in text:
        _wait(info)
        data = os.read(info, 4096)
        if not data:
            raise ChildProcessError(errno.ECHILD, 'bwrap exited before the command started')
        text += data
    return cast('int', json.loads(text)['child-pid'])


def _wait(descriptor: int) -> None:
    """Wait until the descriptor is readable."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(_START_SECONDS * 1000):
        raise TimeoutError(errno.ETIMEDOUT, f'bwrap did not respond for {_START_SECONDS:g} seconds')


def _check_mounts(mountinfo: bytes, mounts: Mounts) -> None:
    """Raise if a mount of the workspace does not show the intended path.

    bwrap mounts by path. At that moment, another command in the same workspace could replace a directory on the path
    with a link to a directory of the host, which would then be visible in this sandbox.

    Args:
        mountinfo: The mounts in the sandbox, from the kernel (proc_pid_mountinfo(5)).
        mounts: The requested mounts.

    Raises:
        MovedMountError: A mount shows another path.
    """
    shown: dict[bytes, tuple[bytes, bytes]] = {}
    for line in mountinfo.splitlines():
        _, _, device, root, point, *_ = line.split(b' ')
        shown[_unescaped(point)] = device, _unescaped(root).rstrip(b'/')
    for path, _ in mounts:
        point = os.fsencode(f'{WORKSPACE}/{path}')
        above = point.rpartition(b'/')[0]
        while above not in shown:
            above = above.rpartition(b'/')[0]
        device, root = shown[above]
        if shown.get(point) != (device, root + point[len(above) :]):
            raise MovedMountError(path)


def _unescaped(text: bytes) -> bytes:
    return re.sub(rb'\\([0-7]{3})', lambda match: bytes((int(match[1], 8),)), text)


def _unavailable(stderr: str) -> SandboxUnavailableError:
    return SandboxUnavailableError(f'The sandbox did not start: {stderr.strip()[-500:]!r}. {INSTALL}, 0.8 or newer.')
