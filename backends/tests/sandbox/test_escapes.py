"""Attempts to escape the sandbox, to harm the host from inside, or to exhaust it. Each must fail and leave the host
intact.

An attempt is a script that prints ESCAPED on success. After each, the host is checked: files outside, a process,
listeners, settings. If it is safe, the same script first runs without a sandbox and must print ESCAPED there, so that
no attempt fails because of its own mistake.

"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pydantic_deep_backends import CommandResult, CommandTimeoutError, SandboxBackend, SandboxLimits
from pydantic_deep_backends.sandbox import _seccomp as seccomp
from pydantic_deep_backends.sandbox._cgroups import find_controllers

PYTHON = '/usr/bin/python3'

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'),
]

needs_python = pytest.mark.skipif(not Path(PYTHON).exists(), reason=f'the attempts need {PYTHON}')

CANARY = 'canary-7f3a'

ROOT = os.geteuid() == 0


@dataclass(frozen=True)
class Attempt:
    name: str
    script: str
    control: bool = True
    """Whether the script works without a sandbox and is harmless there."""
    as_root: bool = False
    """Whether the script works without a sandbox only for root."""
    is_slow_control: bool = False
    """Whether the script takes seconds without a sandbox."""


PRELUDE = """
import ctypes, errno, fcntl, glob, os, resource, signal, socket, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
import json
host = json.loads(sys.argv[1])
def call(name, *arguments):
    "Return what a system call returns, or minus the error; None where the machine has no such call."
    number = host['numbers'][name]
    if number is None:
        return None
    result = libc.syscall(*map(ctypes.c_long, (number, *arguments, *[0] * (6 - len(arguments)))))
    return -ctypes.get_errno() if result == -1 else result
def reached(name, *arguments):
    "Whether a call got beyond the filter: arguments that make no sense fail with something else than EPERM."
    result = call(name, *arguments)
    return result is not None and result not in (-errno.EPERM, -errno.ENOSYS)
def read(path):
    try:
        with open(path, 'rb') as file:
            return file.read(1_000_000).decode(errors='replace')
    except OSError:
        return ''
def can_write(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))
        return True
    except OSError:
        return False
def works(function, *arguments):
    try:
        return function(*arguments) is not False
    except (OSError, ValueError):
        return False
def report(wanted):
    if wanted:
        print('ESCAPED', flush=True)
"""

READING = [
    Attempt('an absolute path', "report('canary' in read(host['secret']))"),
    Attempt('a path that goes up', "report('canary' in read('../outside/secret'))"),
    Attempt('a long way up', "report('canary' in read('../' * 50 + host['secret'][1:]))"),
    Attempt('the root of this process', "report('canary' in read('/proc/self/root' + host['secret']))"),
    Attempt('the root of any process', "report(any('canary' in read(p + host['secret']) for p in glob.glob('/proc/[0-9]*/root')))"),
    Attempt('the working directory of any process', "report(any('canary' in read(p + '/../outside/secret') for p in glob.glob('/proc/[0-9]*/cwd')))"),
    Attempt('a symbolic link', "os.symlink(host['secret'], 'l1'); report('canary' in read('l1'))"),
    Attempt('a chain of links', "os.symlink('/', 'l2'); os.symlink('l2/' + host['secret'], 'l3'); report('canary' in read('l3'))"),
    Attempt('a hard link', "report(works(os.link, host['secret'], 'l4') and 'canary' in read('l4'))"),
    Attempt('descriptors of any process', "report(any('canary' in read(p) for p in glob.glob('/proc/[0-9]*/fd/*') if os.path.isfile(p)))", control=False),
    Attempt('descriptors that are left open', "report([f for f in os.listdir('/proc/self/fd') if int(f) > 2 and os.path.exists('/proc/self/fd/' + f)])", control=False),
    Attempt('map files', "report(any('canary' in read(p) for p in glob.glob('/proc/*/map_files/*')))", control=False),
    Attempt('a file handle', "report(reached('name_to_handle_at', -100, 0, 0, 0, 0)); report(reached('open_by_handle_at', -1, 0, 0))", as_root=True),
    Attempt('passwords', "report('root:' in read('/etc/shadow') + read('/etc/passwd'))"),
    Attempt('homes and state of the system', "report([p for p in ('/root', '/home', '/var', '/run', '/srv', '/mnt', '/boot') if os.path.exists(p)])"),
    Attempt('sysfs', "report(os.path.exists('/sys/kernel'))"),
    Attempt('the variables of this suite', f"report({CANARY!r} in os.environ.values())"),
    Attempt('the variables of any process', f"report(any({CANARY!r} in read(p) for p in glob.glob('/proc/[0-9]*/environ')))"),
    Attempt('the command lines of any process', "report(any('victim' '-argument' in read(p) for p in glob.glob('/proc/[0-9]*/cmdline')))"),
    Attempt('the keys of the kernel', "report(read('/proc/keys') or read('/proc/key-users'))"),
    Attempt('how the kernel was started', "report(read('/proc/cmdline'))"),
    Attempt('the memory of the kernel', "report(read('/proc/kcore') or read('/dev/mem') or works(open, '/proc/kmsg'))", control=False),
    Attempt('the pages of the machine', "report(any(works(open, p) for p in ('/proc/kpagecount', '/proc/slabinfo', '/proc/vmallocinfo')))", as_root=True),
    Attempt('the messages of the kernel', "report(reached('syslog', 10, 0, 0))", as_root=True),
]  # fmt: skip

CHANGING = [
    Attempt('programs', "report(can_write('/usr/bin/env'))", as_root=True),
    Attempt('a new program', "report(works(open, '/usr/bin/escaped', 'w'))", control=False),
    Attempt('settings of the system', "report(works(open, '/etc/escaped', 'w')); report(can_write('/etc/ld.so.cache'))", control=False),
    Attempt('made-up files', "report(can_write('/etc/passwd')); report(works(os.rename, '/etc/passwd', '/etc/x'))", control=False),
    Attempt('the top of the file system', "report(works(os.mkdir, '/escaped'))", control=False),
    Attempt('the mode of a program', "report(works(os.chmod, '/usr/bin/env', 0o755))", as_root=True),
    Attempt('the times of a program', "s = os.stat('/usr/bin/env'); report(works(lambda: os.utime('/usr/bin/env', ns=(s.st_atime_ns, s.st_mtime_ns))))", as_root=True),
    Attempt('the workspace itself', "report(works(os.rename, '/workspace', '/tmp/w')); report(works(os.rmdir, '/workspace'))", control=False),
    Attempt('settings of the kernel', "report(any(can_write(p) for p in glob.glob('/proc/sys/*/*')))", as_root=True),
    Attempt('anything in proc', "report([p for top in os.listdir('/proc') if not top.isdecimal() and top not in ('self', 'thread-self', 'pressure') "
            "for d, _, fs in os.walk('/proc/' + top) for p in (d + '/' + f for f in fs) if can_write(p)] "
            "or [p for p in glob.glob('/proc/*') if os.path.isfile(p) and can_write(p)])", as_root=True),
    Attempt('magic requests', "report(os.access('/proc/sysrq-trigger', os.W_OK) and can_write('/proc/sysrq-trigger'))", control=False),
    Attempt('control groups', "report(works(os.mkdir, '/sys/fs/cgroup/escaped') or os.path.exists('/sys/fs/cgroup'))", control=False),
    Attempt('a disk', "report([n for n in os.listdir('/dev') if n not in ('core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero').split()])", control=False),
    Attempt('a device of its own', "report(works(os.mknod, 'd', stat.S_IFBLK | 0o600, os.makedev(254, 0)) or works(os.mknod, 'c', stat.S_IFCHR | 0o600, os.makedev(1, 1)))", as_root=True),
    Attempt('the device that is its input', "report(os.fstat(0)[1:3] != os.stat('/dev/null')[1:3]); works(os.fchmod, 0, 0o666); works(os.utime, 0, (1, 1))", control=False),
    Attempt('the mode of devices', "works(os.chmod, '/dev/null', 0o600); works(os.chmod, '/dev/tty', 0); works(os.utime, '/dev/zero', (1, 1))", control=False),
    Attempt('a program with the rights of its owner', "open('s', 'w').close(); report(works(os.chmod, 's', 0o4755)); report(works(os.fchmod, os.open('s', os.O_RDWR), 0o2755))"),
    Attempt('a new file with the rights of its owner', "report(os.fstat(os.open('s2', os.O_CREAT | os.O_WRONLY, 0o4755)).st_mode & 0o4000) if works(os.open, 's3', os.O_CREAT, 0o4755) else None"),
    Attempt('a program with capabilities', "open('c', 'w').close(); report(works(os.setxattr, 'c', 'security.capability', struct.pack('<5I', 0x02000001, 1 << 21, 0, 0, 0)))", as_root=True),
    Attempt('another owner', "open('o', 'w').close(); report(works(os.chown, 'o', 1234, 1234))", as_root=True),
]  # fmt: skip

NAMESPACES = {
    'time': 0x80, 'mount': 0x20000, 'cgroup': 0x2000000, 'uts': 0x4000000, 'ipc': 0x8000000, 'user': 0x10000000,
    'pid': 0x20000000, 'net': 0x40000000,
}  # fmt: skip

RIGHTS = [
    *(
        Attempt(f'a new {name} namespace', f"report(call('unshare', {flag}) == 0)", as_root=True)
        for name, flag in NAMESPACES.items()
    ),
    Attempt('a child in a new user namespace', "p = call('clone', 0x10000000 | 17, 0, 0, 0, 0); p == 0 and os._exit(0); report(p > 0)", as_root=True),
    Attempt('clone3, whose flags are in memory', "report(call('clone3', 0, 0) != -errno.ENOSYS)"),
    Attempt('the namespaces of another process', "report(any(reached('setns', os.open(p, os.O_RDONLY), 0) for p in glob.glob('/proc/1/ns/*')))", control=False),
    Attempt('chroot', "report(works(os.chroot, '.'))", as_root=True),
    Attempt('mount', "report(reached('mount', 0, 0, 0, 0x20, 0))", as_root=True),
    Attempt('umount', "report(reached('umount2', 0, 0))", as_root=True),
    Attempt('pivot_root', "report(reached('pivot_root', 0, 0))", as_root=True),
    Attempt('mounts by descriptors', "report([n for n in ('open_tree', 'move_mount', 'fsopen', 'fsconfig', 'fsmount', 'fspick', 'mount_setattr') if reached(n, -1)])", as_root=True),
    Attempt('the user root', "report(works(os.setuid, 0) or works(os.setresuid, 0, 0, 0))", as_root=True),
    Attempt('another group', "report(works(os.setgroups, [0]) or works(os.setgid, 0))", as_root=True),
    Attempt('programs with the rights of root', "report('uid=0' in ''.join(os.popen(f'{p} -c id 2>&1 </dev/null').read() for p in ('su', 'sudo -n sh', 'pkexec sh')))", control=False),
    Attempt('capabilities', "report([l for l in read('/proc/self/status').splitlines() if l.startswith('Cap') and int(l.split()[1], 16)])", as_root=True),
    Attempt('higher limits', "report([k for k in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_CORE) "
            "if works(resource.setrlimit, k, (-1 if k != resource.RLIMIT_NOFILE else 2000, ) * 2)])", as_root=True),
    Attempt('a higher priority', "report(works(os.nice, -5)); report(works(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)))", as_root=True),
]  # fmt: skip

PROCESSES = [
    Attempt('a signal to a process', "report(works(os.kill, host['victim'], 0))"),
    Attempt('a signal to every process', 'os.kill(-1, signal.SIGKILL)', control=False),
    Attempt('a signal to the first process', 'os.kill(1, signal.SIGKILL); os.kill(1, signal.SIGTERM); os.kill(1, signal.SIGSTOP)', control=False),
    Attempt('a signal to the group', 'os.killpg(os.getpgid(0), signal.SIGTERM)', control=False),
    Attempt('tracing', "report(call('ptrace', 0, 0, 0, 0) == 0)"),
    Attempt('the memory of a process', "report(reached('process_vm_readv', os.getpid(), 0, 0, 0, 0, 0)); report(reached('process_vm_writev', os.getpid(), 0, 0, 0, 0, 0))"),
    Attempt('descriptors of a process', "report(reached('pidfd_getfd', -1, 0, 0))"),
    Attempt('a comparison of processes', "report(reached('kcmp', os.getpid(), os.getpid(), 99, 0, 0))"),
    Attempt('the limits of a process', "report(works(resource.prlimit, host['victim'], resource.RLIMIT_NOFILE))"),
    Attempt('the priority of a process', "report(works(os.getpriority, os.PRIO_PROCESS, host['victim']))"),
    Attempt('all processes', "report(len(glob.glob('/proc/[0-9]*')) > 3)"),
    Attempt('shared memory', "report(call('shmget', 0, 4096, 0o1600) >= 0)", control=False),
    Attempt('semaphores and messages, which no limit counts', "report([n for n in ('semget', 'msgget') if reached(n, 0, 0, 0)])"),
    Attempt('the semaphores of the host', "report(len(read('/proc/sysvipc/sem').splitlines()) > 1)", control=False),
]  # fmt: skip

NETWORK = [
    Attempt('loopback', "s = socket.socket(); report(works(s.connect, ('127.0.0.1', host['port'])))"),
    Attempt('loopback by its IPv6 name', "s = socket.socket(socket.AF_INET6); report(works(s.connect, ('::ffff:127.0.0.1', host['port'])))"),
    Attempt('loopback by 0.0.0.0', "s = socket.socket(); report(works(s.connect, ('0.0.0.0', host['port'])))"),
    Attempt('datagrams', "s = socket.socket(type=socket.SOCK_DGRAM); report(works(s.sendto, b'x', ('127.0.0.1', host['udp'])) and os.path.exists('/sys'))"),
    Attempt('an abstract Unix socket', "s = socket.socket(socket.AF_UNIX); report(works(s.connect, '\\0' + host['abstract']))"),
    Attempt('a Unix socket with a path', "s = socket.socket(socket.AF_UNIX); report(works(s.connect, host['unix']))"),
    Attempt('the outside', "s = socket.socket(); s.settimeout(2); report(works(s.connect, ('192.0.2.1', 80)) or s.connect_ex(('192.0.2.1', 80)) != errno.ENETUNREACH)", control=False),
    Attempt('names', "report(works(socket.getaddrinfo, 'example.com', 80))", control=False),
    Attempt('other interfaces', "report([n for n in read('/proc/net/dev').splitlines()[2:] if not n.strip().startswith('lo:')])", control=False),
    Attempt('raw sockets', "report(works(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)); report(works(socket.socket, socket.AF_INET6, socket.SOCK_RAW, 58))", as_root=True),
    Attempt('TCP over several paths', "report(works(socket.socket, socket.AF_INET, socket.SOCK_STREAM, 262)); report(works(socket.socket, socket.AF_INET6, socket.SOCK_STREAM, 262))", control=False),
    Attempt('datagrams without checksums', "report(works(socket.socket, socket.AF_INET, socket.SOCK_DGRAM, 136)); report(works(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM, 136))", control=False),
    Attempt('every other protocol', "report([(f, t, p) for f in (2, 10) for t in (*range(11), 1 | socket.SOCK_CLOEXEC) for p in range(512) if (t & 15, p) not in {(1, 0), (1, 6), (2, 0), (2, 17)} and works(socket.socket, f, t, p)])", is_slow_control=True),
    Attempt('TLS in the kernel', "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); c = socket.create_connection(s.getsockname()); report(works(lambda: c.setsockopt(6, 31, b'tls')))", control=False),
    Attempt('packets', "report(works(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 3))", as_root=True),
    Attempt('netlink', "report(works(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 0))"),
    Attempt('virtual machines', "report(works(socket.socket, 40, socket.SOCK_STREAM, 0))", control=False),
    Attempt('ciphers of the kernel', "report(works(socket.socket, 38, socket.SOCK_SEQPACKET, 0))", control=False),
    Attempt('every other family', "report([f for f in range(3, 64) if f != 10 and any(works(socket.socket, f, t, 0) for t in (1, 2, 3, 5))])"),
    Attempt('pairs of other families', "report(works(socket.socketpair, 30, 1, 0))", control=False),
]  # fmt: skip

KERNEL = [
    Attempt('keys', "report([n for n in ('keyctl', 'add_key', 'request_key') if reached(n, 0)])"),
    Attempt('bpf', "report(reached('bpf', 0, 0, 0))", as_root=True),
    Attempt('io_uring', "report([n for n in ('io_uring_setup', 'io_uring_enter', 'io_uring_register') if reached(n, 0)])", control=False),
    Attempt('userfaultfd', "report(reached('userfaultfd', 1))", control=False),
    Attempt('counters', "report(reached('perf_event_open', 0, 0, 0, 0, 0))", control=False),
    Attempt('watching file systems', "report(reached('fanotify_init', 0, 0))", as_root=True),
    Attempt('modules', "report([n for n in ('init_module', 'finit_module', 'delete_module') if reached(n, 0, 0, 0)])", control=False),
    Attempt('another kernel', "report([n for n in ('kexec_load', 'kexec_file_load') if reached(n, 0, 99, 0)])", control=False),
    Attempt('a restart', "report(reached('reboot', 0, 0, 0))", as_root=True),
    Attempt('the clock', "report([n for n in ('settimeofday', 'clock_settime', 'clock_adjtime', 'adjtimex') if reached(n, 0, 1)])"),
    Attempt('swap', "report([n for n in ('swapon', 'swapoff') if reached(n, 0)])", as_root=True),
    Attempt('accounting', "report(reached('acct', 1))", as_root=True),
    Attempt('quotas', "report(reached('quotactl', -1, 0, 0, 0))"),
    Attempt('the name of the machine', "report(works(socket.sethostname, 'escaped'))", control=False),
    Attempt('ports of the processor', "report([n for n in ('iopl', 'ioperm', 'modify_ldt') if reached(n, 99)])", control=False),
    Attempt('placing of memory', "report([n for n in ('mbind', 'set_mempolicy', 'migrate_pages', 'move_pages') if reached(n, 0)])", control=False),
    Attempt('memory without a limit', "report([n for n in ('memfd_create', 'memfd_secret') if reached(n, 0)])", control=False),
    Attempt('typing into a terminal', "import pty; _, t = pty.openpty(); report(works(fcntl.ioctl, t, 0x5412, b'x'))", as_root=True),
    Attempt('typing with a number that has a high half', "import pty; _, t = pty.openpty(); report(libc.syscall(host['ioctl'], t, ctypes.c_ulong(0x100005412), ctypes.c_char_p(b'x')) == 0)", as_root=True),
    Attempt('hanging up', "report(reached('vhangup'))", control=False),
    Attempt('calls of x32', "libc.syscall(0x40000000 | 39); report(True)"),
    Attempt('calls of 32 bits', "import mmap; m = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('53b814000000cd805bc3')); "
            "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))(); report(True)"),
]  # fmt: skip

ATTEMPTS = {
    'read': READING, 'change': CHANGING, 'rights': RIGHTS, 'processes': PROCESSES, 'network': NETWORK, 'kernel': KERNEL,
}  # fmt: skip


def test_attempts_are_numerous() -> None:
    assert sum(map(len, ATTEMPTS.values())) > 100


class Host:
    """The targets of attempts, and their state before."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.root = directory / 'root'
        self.outside = directory / 'outside'
        self.root.mkdir()
        self.outside.mkdir()
        self.secret = self.outside / 'secret'
        self.secret.write_text('canary')
        self.victim = stack.enter_context(subprocess.Popen(['victim-argument', '1000'], executable='/bin/sleep'))
        stack.callback(self.victim.kill)
        self.tcp = stack.enter_context(socket.create_server(('127.0.0.1', 0)))
        self.udp = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        self.udp.bind(('127.0.0.1', 0))
        self.abstract, self.unix = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        self.abstract.bind(f'\0{directory.name}-{os.getpid()}')
        short = stack.enter_context(ShortDirectory())
        self.unix_path = short / 's'
        self.unix.bind(str(self.unix_path))
        for listener in (self.abstract, self.unix):
            listener.listen()
        self.before = self.look()
        machine = os.uname().machine
        tables = [*seccomp._DENIED, *seccomp._MISSING, *seccomp._UNSUPPORTED]  # pyright: ignore[reportPrivateUsage]
        self.facts = json.dumps(
            {
                'secret': str(self.secret),
                'victim': self.victim.pid,
                'port': self.tcp.getsockname()[1],
                'udp': self.udp.getsockname()[1],
                'abstract': f'{directory.name}-{os.getpid()}',
                'unix': str(self.unix_path),
                'ioctl': {'x86_64': 16, 'aarch64': 29}[machine],
                'numbers': {
                    **{name: seccomp.denied_number(name, machine) for name in tables},
                    'clone': {'x86_64': 56, 'aarch64': 220}[machine],
                },
            }
        )

    def look(self) -> dict[str, object]:
        """Return the state that no attempt may change."""
        return {
            'outside': {path.name: (path.read_text(), path.stat()[:7]) for path in self.outside.iterdir()},
            'devices': [(path, os.stat(path)[:3]) for path in ('/dev/null', '/dev/zero', '/dev/full', '/dev/tty')],
            'input': os.stat('/dev/null').st_ctime_ns,
            'programs': os.stat('/usr/bin/env')[:7],
            'names': sorted({*os.listdir('/'), *os.listdir('/usr/bin'), *os.listdir('/etc')}),
            'machine': os.uname()[:5],
            'settings': [Path('/proc/sys', name).read_text() for name in ('kernel/core_pattern', 'vm/swappiness')],
            'mounts': len(Path('/proc/self/mounts').read_text().splitlines()),
            'victim': self.victim.poll(),
        }

    def assert_intact(self) -> None:
        """Check that nothing changed, nothing connected, and the workspace contains nothing dangerous."""
        assert self.look() == self.before
        for listener in (self.tcp, self.abstract, self.unix):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()
        self.udp.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.udp.recv(1)
        for path in self.root.rglob('*'):
            mode = path.lstat().st_mode
            assert not mode & (stat.S_ISUID | stat.S_ISGID)
            assert not stat.S_ISBLK(mode)
            assert not stat.S_ISCHR(mode)
            assert path.lstat().st_uid == os.geteuid()
        assert [path for path in Path('/proc').glob('[0-9]*') if lives_in(path, self.root)] == []


def lives_in(process: Path, root: Path) -> bool:
    try:
        return f'{root} /workspace ' in (process / 'mountinfo').read_text()
    except OSError:
        return False


class ShortDirectory:
    """A directory with a path short enough for a socket."""

    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp())
        return self._path

    def __exit__(self, *details: object) -> None:
        shutil.rmtree(self._path)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv('PYDANTIC_DEEP_CANARY', CANARY)
    with ExitStack() as stack:
        yield Host(tmp_path, stack)


def named(attempts: list[Attempt]) -> list[object]:
    return [pytest.param(attempt, id=attempt.name) for attempt in attempts]


async def assert_fails(host: Host, attempt: Attempt) -> None:
    result = await SandboxBackend(host.root).run([PYTHON, '-c', PRELUDE + attempt.script, host.facts], timeout=60)
    assert 'ESCAPED' not in result.stdout
    assert 'Traceback' not in result.stderr.replace('PermissionError', '') or 'Error: [Errno' in result.stderr
    host.assert_intact()


@needs_python
@pytest.mark.parametrize('attempt', named(READING))
async def test_command_cannot_read_outside_the_sandbox(host: Host, attempt: Attempt) -> None:
    await assert_fails(host, attempt)


@needs_python
@pytest.mark.parametrize('attempt', named(CHANGING))
async def test_command_cannot_change_the_host(host: Host, attempt: Attempt) -> None:
    await assert_fails(host, attempt)


@needs_python
@pytest.mark.parametrize('attempt', named(RIGHTS))
async def test_command_cannot_gain_privileges(host: Host, attempt: Attempt) -> None:
    await assert_fails(host, attempt)


@needs_python
@pytest.mark.parametrize('attempt', named(PROCESSES))
async def test_command_cannot_reach_host_processes(host: Host, attempt: Attempt) -> None:
    await assert_fails(host, attempt)


@needs_python
@pytest.mark.parametrize('attempt', named(NETWORK))
async def test_command_cannot_connect_to_the_host(host: Host, attempt: Attempt) -> None:
    await assert_fails(host, attempt)


@needs_python
@pytest.mark.parametrize('attempt', named(KERNEL))
async def test_command_cannot_use_forbidden_system_calls(host: Host, attempt: Attempt) -> None:
    await assert_fails(host, attempt)


@needs_python
@pytest.mark.parametrize(
    'attempt',
    [
        pytest.param(a, id=a.name, marks=[pytest.mark.slow] if a.is_slow_control else [])
        for group in ATTEMPTS.values()
        for a in group
        if a.control and (ROOT or not a.as_root)
    ],
)
def test_attempt_succeeds_without_a_sandbox(host: Host, attempt: Attempt) -> None:
    """Control: a script that fails here would prove nothing inside the sandbox."""
    if attempt.name.startswith('calls of') and os.uname().machine != 'x86_64':
        pytest.skip('only x86_64 has these calls')
    done = subprocess.run(
        [PYTHON, '-c', PRELUDE + attempt.script, host.facts],
        cwd=host.root,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 'ESCAPED' in done.stdout, done.stderr


# Resource exhaustion

SMALL = SandboxLimits(
    processes=40,
    memory_bytes=256 * 2**20,
    tmp_bytes=2**20,
    file_size_bytes=2**20,
    open_files=64,
    cpu_seconds=1,
    output_bytes=10_000,
    disk_bytes=32 * 2**20,
)


async def use_up(host: Host, script: str, *, seconds: float = 60, limits: SandboxLimits = SMALL) -> CommandResult:
    """Run a shell script with small limits. A timeout is represented by exit code -1000."""
    try:
        result = await SandboxBackend(host.root, limits=limits).run(script, shell=True, timeout=seconds)
    except CommandTimeoutError as error:
        result = CommandResult(exit_code=-1000, stdout=error.stdout, stderr=error.stderr)
    host.assert_intact()
    return result


def python(script: str) -> str:
    return f"{PYTHON} -c '{script}'"


async def test_fork_bomb_is_bounded_and_ended(host: Host) -> None:
    # It ends by itself after a refused fork, in the bomb or in the shell.
    result = await use_up(host, 'f() { f | f & }; f 2> refused; until grep -q ork refused; do :; done')
    assert result.exit_code in (0, 2)
    assert 'ork' in (host.root / 'refused').read_text() + result.stderr


async def test_process_count_is_limited(host: Host) -> None:
    script = 'use POSIX; $n = 0; while (defined(my $p = fork)) { if (!$p) { sleep 600 } $n++ } print $n'
    result = await use_up(host, f"perl -e '{script}'")
    assert 30 < int(result.stdout) < 40


@needs_python
async def test_thread_count_is_limited(host: Host) -> None:
    script = """
import threading, time
n = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        n += 1
except RuntimeError:
    print(n, flush=True)
    import os; os._exit(0)
"""
    limits = SandboxLimits(processes=40)
    assert 30 < int((await use_up(host, python(script), limits=limits)).stdout) < 40


async def test_zombies_count_as_processes(host: Host) -> None:
    script = '$n = 0; while (defined(my $p = fork)) { exit if !$p; $n++ } print $n'
    assert 30 < int((await use_up(host, f"perl -e '{script}'")).stdout) < 40


async def test_orphans_are_reaped(host: Host) -> None:
    script = 'i=0; while [ $i -lt 200 ]; do (true &); i=$((i+1)); done; echo done'
    assert (await use_up(host, script)).stdout == 'done\n'


@needs_python
async def test_process_memory_is_limited(host: Host) -> None:
    result = await use_up(host, python('x = bytearray(300_000_000); print(1)'))
    assert (result.exit_code, result.stdout, 'MemoryError' in result.stderr) == (1, '', True)


@pytest.mark.slow
@needs_python
@pytest.mark.skipif(find_controllers().memory is None, reason='no control group for memory can be made here')
async def test_total_memory_is_limited(host: Host) -> None:
    child = 'import time; x = bytearray(b"x") * 60_000_000; print(1, flush=True); time.sleep(600)'
    alive = 'grep -l bytearray /proc/[0-9]*/cmdline | wc -l'  # these, the shell and the first process
    # One after another: each has its memory, or was killed, when the next one starts.
    begin = f'{python(child)} > begun & read _ < begun'
    script = f'mkfifo begun; for i in 1 2 3 4 5 6 7 8 9 10; do {begin}; done; {alive}'
    result = await use_up(host, script)
    assert result.exit_code == 0
    assert 3 <= int(result.stdout.split()[-1]) < 9


@pytest.mark.parametrize('directory', ['/tmp', '/dev/shm'])
async def test_temporary_files_are_limited(host: Host, directory: str) -> None:
    script = f'for i in 1 2 3; do head -c 900000 /dev/zero > {directory}/$i || echo full; done'
    result = await use_up(host, script)
    assert result.stdout.count('full') == 2
    assert 'No space left' in result.stderr


async def test_no_other_in_memory_file_system_is_writable(host: Host) -> None:
    script = 'for d in / /dev /etc /proc /workspace/.. /usr/share; do echo x > $d/filled && echo ESCAPED; done'
    assert (await use_up(host, script)).stdout == ''


async def test_file_size_is_limited(host: Host) -> None:
    result = await use_up(host, 'exec head -c 100000000 /dev/zero > file')
    assert result.exit_code == -signal.SIGXFSZ
    assert (host.root / 'file').stat().st_size == 2**20


async def test_sparse_file_size_is_limited(host: Host) -> None:
    result = await use_up(host, 'truncate -s 1T file')
    assert result.exit_code != 0
    assert (host.root / 'file').stat().st_size == 0


TAKE = """
import ctypes, fcntl, os, struct
from ctypes import c_int, c_long
libc = ctypes.CDLL(None, use_errno=True)
file = os.open("taken", os.O_CREAT | os.O_RDWR)
size = 64 << 20
libc.fallocate.argtypes = (c_int, c_int, c_long, c_long)
print(libc.fallocate(file, 1, 0, size))
for request in (0x40305828, 0x4030582A):
    try:
        print(fcntl.ioctl(file, request, struct.pack("@hhqqiI4i", 0, 0, 0, size, 0, 0, 0, 0, 0, 0)))
    except OSError:
        print(-1)
print(os.fstat(file).st_blocks)
"""


@needs_python
async def test_preallocation_cannot_fill_the_disk(host: Host) -> None:
    """These calls ignore the file size limit, and could fill the disk between two checks."""
    assert (await use_up(host, python(TAKE))).stdout.split() == ['-1', '-1', '-1', '0']


@pytest.mark.slow
async def test_cpu_time_is_limited(host: Host) -> None:
    assert (await use_up(host, 'while :; do :; done')).exit_code in (-signal.SIGXCPU, -signal.SIGKILL)


@needs_python
async def test_descriptors_are_limited(host: Host) -> None:
    script = """
import os
n = 0
try:
    while True:
        os.dup(0)
        n += 1
except OSError:
    print(n)
"""
    assert int((await use_up(host, python(script))).stdout) < 64


async def test_core_dumps_are_disabled(host: Host) -> None:
    result = await use_up(host, 'ulimit -c unlimited; kill -SEGV $$')
    assert result.exit_code == -signal.SIGSEGV
    assert os.listdir(host.root) == []


async def test_endless_output_is_capped(host: Host) -> None:
    result = await use_up(host, 'yes & yes >&2 & sleep 600', seconds=1.0)
    assert result.exit_code in (-1000, -signal.SIGKILL)
    assert max(len(result.stdout), len(result.stderr)) < 11_000


async def test_command_that_stops_itself_times_out(host: Host) -> None:
    assert (await use_up(host, 'kill -STOP $$', seconds=0.3)).exit_code == -1000


async def test_command_that_ignores_signals_times_out(host: Host) -> None:
    script = 'trap "" HUP INT QUIT TERM USR1 USR2; setsid nohup sleep 600 & sleep 600'
    assert (await use_up(host, script, seconds=0.3)).exit_code == -1000


async def test_daemon_ends_with_its_command(host: Host) -> None:
    script = "perl -MPOSIX -e 'fork && exit; setsid; fork && exit; close $_ for *STDIN, *STDOUT, *STDERR; sleep 600'; echo done"
    assert (await use_up(host, script)).stdout == 'done\n'


@needs_python
async def test_forged_report_affects_only_its_own_exit_code(host: Host) -> None:
    """The command can write to the report pipe of the first process."""
    script = 'import glob; [open(p, "w").write("999999999999" * 9) for p in glob.glob("/proc/1/fd/*") if "pipe" in __import__("os").readlink(p)]'
    assert (await use_up(host, python(script))).exit_code in (-signal.SIGKILL, 0)


# Files planted by commands

PLANTED = """
ln -s /etc/shadow link; ln -s / top; ln -s .. up; ln -s loop loop; ln -s /workspace/../etc/shadow tricky
ln -s /proc/self/root/etc/shadow magic
mkfifo fifo; perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un("socket"))'
truncate -s 3G sparse; mkdir closed; echo x > closed/file; chmod 000 closed; echo x > unreadable; chmod 000 unreadable
: > "$(printf 'new\nline')"; : > "$(printf 'esc\033[2J')"; : > "$(printf '\377\376')"; : > '..'"$(printf '\001')"
mkdir deep; (cd deep; i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done)
echo good > good; ln good twin
"""


@pytest.mark.slow
async def test_file_operations_are_not_misled_by_planted_files(host: Host) -> None:
    limits = SandboxLimits(file_size_bytes=4 * 2**30)
    backend = SandboxBackend(host.root, limits=limits)
    assert (await backend.run(PLANTED, shell=True)).exit_code == 0
    for name in ('link', 'top/etc/shadow', 'up/outside/secret', 'loop', 'tricky', 'magic', 'fifo', 'socket', 'sparse'):
        with pytest.raises(OSError):  # noqa: PT011 - each in its own way
            await backend.read_bytes(f'/workspace/{name}')
    for name in ('link', 'top/x', 'up/x', 'tricky', 'magic', 'fifo', 'socket'):
        with pytest.raises(OSError):  # noqa: PT011
            await backend.write_bytes(f'/workspace/{name}', b'x')
    listed = {entry.name for entry in await backend.list_dir('/workspace')}
    assert listed >= {'link', 'fifo', 'socket', 'sparse', 'closed', 'unreadable', 'new\nline', 'esc\x1b[2J', 'good'}
    found = await backend.grep('good|root:|canary', '/workspace')
    assert sorted(found.counts) == ['/workspace/good', '/workspace/twin']
    assert '/workspace/good' in (await backend.glob('**', '/workspace')).paths
    await backend.write_bytes('/workspace/twin', b'changed')
    assert await backend.read_bytes('/workspace/good') == b'good\n'
    for entry in await backend.list_dir('/workspace'):
        if entry.name.isprintable() and entry.name.isascii():
            await backend.remove(entry.path)
    assert len(os.listdir(host.root)) == 4
    host.assert_intact()
    assert (await backend.run('rm -rf -- * ..?; ls -A', shell=True)).stdout == ''
