"""The parts that commands are made of: kept output, the filter of system calls, control groups, devices."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pydantic_deep_backends import SandboxLimits
from pydantic_deep_backends.commands._execution import Execution, exit_code_of
from pydantic_deep_backends.commands._local_process import start_locally
from pydantic_deep_backends.commands._output import CappedOutput
from pydantic_deep_backends.files._confined_root import ConfinedRoot
from pydantic_deep_backends.sandbox import _bwrap as bwrap
from pydantic_deep_backends.sandbox import _cgroups as cgroups
from pydantic_deep_backends.sandbox import _disk_usage as disk
from pydantic_deep_backends.sandbox import _seccomp as seccomp
from pydantic_deep_backends.sandbox import _stale_resources as leftovers
from pydantic_deep_backends.sandbox._cgroups import Controllers, find_controllers, make_group, remove_stale_groups
from pydantic_deep_backends.sandbox._disk_usage import measure

# Kept output


def kept(limit_bytes: int, *chunks: bytes) -> str:
    output = CappedOutput(limit_bytes)
    for chunk in chunks:
        output.add(chunk)
    return output.text()


def test_output_within_the_limit_is_whole() -> None:
    assert kept(8) == ''
    assert kept(8, b'0123', b'4567') == '01234567'
    assert kept(1, b'a') == 'a'


@pytest.mark.parametrize('size', [1, 2, 3, 5, 20])
def test_the_middle_is_left_out_however_the_chunks_fall(size: int) -> None:
    data = bytes(range(48, 68))
    chunks = [data[start : start + size] for start in range(0, 20, size)]
    assert kept(9, *chunks) == '01234\n[… 11 bytes left out …]\n@ABC'


def test_a_limit_of_one_byte_keeps_the_first() -> None:
    assert kept(1, b'abc') == 'a\n[… 2 bytes left out …]\n'


def test_a_character_that_is_cut_in_two_is_left_out_whole() -> None:
    assert kept(6, 'aé日é日'.encode()) == 'aé\n[… 5 bytes left out …]\n日'
    assert kept(4, 'é日日'.encode()) == 'é\n[… 6 bytes left out …]\n'


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert kept(8, b'a\xffb\xc3') == 'a\ufffdb\ufffd'
    assert kept(4, b'\xffa....b\xff') == '\ufffda\n[… 4 bytes left out …]\nb\ufffd'


def test_memory_is_bounded_by_the_limit() -> None:
    output = CappedOutput(1000)
    for _ in range(1000):
        output.add(b'x' * 10_000)
    assert len(output._head) + len(output._tail) == 1000  # pyright: ignore[reportPrivateUsage]
    assert len(output.text()) == 1000 + len('\n[… 9,999,000 bytes left out …]\n')


# Reports


@pytest.mark.parametrize('report', [b'', b'x', b'1.5', b'9' * 60, b'-1', b'127'], ids=ascii)
def test_a_report_that_cannot_be_is_none(report: bytes) -> None:
    assert exit_code_of(report) is None


def test_what_was_stopped_before_it_began_never_starts() -> None:
    def start() -> bwrap.SandboxCommand:
        raise AssertionError

    execution = Execution(start=start, check=lambda: None, output_bytes=1, timeout_seconds=None)
    assert not execution.stop()
    assert execution.run() is None


@pytest.mark.slow
def test_a_directory_that_cannot_be_entered_leaves_nothing_open(descriptors: Callable[[], list[str]]) -> None:
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        start_locally(['true'], '/pydantic-deep/none', {})
    assert descriptors() == before


# The filter


def judged(machine: str, number: int, *arguments: int, network: bool = False, audit: int | None = None) -> int:
    """Return what a filter answers: the rules of the kernel, for the few instructions that are used."""
    own = {'x86_64': 0xC000003E, 'aarch64': 0xC00000B7}[machine]
    full = (*arguments, *[0] * (6 - len(arguments)))
    facts = struct.pack('=IIQ6Q', number, own if audit is None else audit, 0, *full)
    program = seccomp.render_filter(machine, network=network)
    instructions = list(struct.iter_unpack('=HBBI', program))
    place = loaded = 0
    while True:
        code, if_true, if_false, value = instructions[place]
        place += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from('=I', facts, value)
            case 0x54:
                loaded &= value
            case 0x06:
                return value
            case _:
                holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
                place += if_true if holds else if_false


ALLOWED, ENDED, FAILED = 0x7FFF0000, 0x80000000, 0x50000
MACHINES = pytest.mark.parametrize('machine', seccomp.ARCHITECTURES)
SOCKET = {'x86_64': (41, 53), 'aarch64': (198, 199)}


@MACHINES
def test_what_the_tables_name_fails_and_all_else_is_allowed(machine: str) -> None:
    names = [*seccomp._DENIED, *seccomp._MISSING]  # pyright: ignore[reportPrivateUsage]
    unsupported = seccomp.denied_number('fallocate', machine)
    numbers = {seccomp.denied_number(name, machine) for name in names}
    assert len(numbers - {None}) > 55
    missing = {seccomp.denied_number(name, machine) for name in ('clone3', 'memfd_create', 'openat2')}
    for number in range(600):
        expected = ALLOWED if number not in numbers else FAILED | (errno.ENOSYS if number in missing else errno.EPERM)
        if number == unsupported:
            expected = FAILED | errno.EOPNOTSUPP
        # A stream socket of Unix, and the same numbers as the arguments of anything else.
        if number != SOCKET[machine][0] or expected != ALLOWED:
            assert judged(machine, number, 1) == expected


@MACHINES
def test_programs_of_another_architecture_are_ended(machine: str) -> None:
    for audit in (0x40000003, 0x40000028, 0xC000003E, 0xC00000B7):
        assert (judged(machine, 1, audit=audit) == ALLOWED) == (
            audit == {'x86_64': 0xC000003E}.get(machine, 0xC00000B7)
        )
    assert (judged(machine, 0x40000001) == ENDED) == (machine == 'x86_64')


@MACHINES
def test_children_are_allowed_and_new_namespaces_are_not(machine: str) -> None:
    clone = {'x86_64': 56, 'aarch64': 220}[machine]
    assert judged(machine, clone, 17) == ALLOWED
    assert judged(machine, clone, 0x3D0F00) == ALLOWED  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judged(machine, clone, flag | 17) == FAILED | errno.EPERM


@MACHINES
def test_sockets_have_few_families_and_kinds(machine: str) -> None:
    number, pair = SOCKET[machine]
    for family in range(64):
        known = family in (1, 2, 10)
        assert judged(machine, number, family, 0x80001) == (ALLOWED if known else FAILED | errno.EAFNOSUPPORT)
        with_network = judged(machine, number, family, 2, network=True)
        assert with_network == (ALLOWED if family in (2, 10) else FAILED | errno.EAFNOSUPPORT)
        assert judged(machine, pair, family, 1) == (ALLOWED if family == 1 else FAILED | errno.EAFNOSUPPORT)
    for kind in (3, 10, 0x80003, 0x803):
        assert judged(machine, number, 2, kind) == FAILED | errno.EPERM
    assert judged(machine, number, 2 | 1 << 40, 1) == ALLOWED  # the kernel looks at the low half too


@MACHINES
def test_terminals_cannot_be_typed_into_and_disks_not_be_taken(machine: str) -> None:
    ioctl = {'x86_64': 16, 'aarch64': 29}[machine]
    assert judged(machine, ioctl, 0, 0x5401) == ALLOWED
    for request in (0x5412, 0x541C, 0x5423, 0x5412 | 1 << 32, 0x40305828, 0x4030582A, 0x40305839):
        assert judged(machine, ioctl, 0, request) == FAILED | errno.EPERM


@MACHINES
def test_no_file_gets_the_rights_of_its_owner(machine: str) -> None:
    places = {'x86_64': {2: 2, 257: 3, 85: 1, 90: 1, 91: 1, 268: 2, 452: 2, 133: 1, 259: 2}}
    for number, place in places.get(machine, {56: 3, 52: 1, 53: 2, 452: 2, 33: 2}).items():
        before = [0] * place
        assert judged(machine, number, *before, 0o1777) == ALLOWED
        for mode in (0o4755, 0o2755, 0o6000):
            assert judged(machine, number, *before, mode) == FAILED | errno.EPERM


# Control groups


@pytest.fixture
def version_2(tmp_path: Path) -> tuple[Path, Path]:
    """The lists of a kernel with one hierarchy, in which this process is two levels down."""
    mounts, own = tmp_path / 'mounts', tmp_path / 'own'
    mounts.write_text(f'proc /proc proc rw 0 0\ncgroup2 {tmp_path}/top cgroup2 rw,nsdelegate 0 0\n')
    own.write_text('0::/service/worker\n')
    (tmp_path / 'top/service/worker').mkdir(parents=True)
    return mounts, own


class Kernel:
    """A directory that makes files in new directories, as the file system of control groups does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, parent: Path, files: tuple[str, ...]) -> None:
        make, remove = Path.mkdir, Path.rmdir

        def mkdir(path: Path) -> None:
            make(path)
            if path.parent == parent:
                for name in files:
                    (path / name).touch()

        def rmdir(path: Path) -> None:
            for name in files:
                (path / name).unlink(missing_ok=True)
            remove(path)

        monkeypatch.setattr(Path, 'mkdir', mkdir)
        monkeypatch.setattr(Path, 'rmdir', rmdir)


FILES = ('cgroup.procs', 'pids.max', 'memory.max', 'memory.swap.max', 'memory.oom.group')


def test_groups_are_made_where_the_controllers_are(
    version_2: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kernel(monkeypatch, tmp_path / 'top', FILES)
    controllers = find_controllers(*version_2)
    assert controllers == Controllers(processes=tmp_path / 'top', memory=tmp_path / 'top')
    group = make_group(controllers, processes=7, memory_bytes=1000)
    (directory,) = group.directories
    group.add(42)
    assert {name: (directory / name).read_text() for name in FILES} == {
        'cgroup.procs': '42',
        'pids.max': '7',
        'memory.max': '1000',
        'memory.swap.max': '0',
        'memory.oom.group': '1',
    }
    group.remove()
    assert sorted(path.name for path in (tmp_path / 'top').iterdir()) == ['service']
    group.remove()  # gone already


def test_there_is_none_where_no_group_can_be_made(version_2: tuple[Path, Path], tmp_path: Path) -> None:
    assert find_controllers(*version_2) == Controllers(processes=None, memory=None)
    (tmp_path / 'mounts').write_text(f'cgroup2 {tmp_path}/none cgroup2 rw 0 0\n')
    assert find_controllers(*version_2) == Controllers(processes=None, memory=None)
    assert make_group(Controllers(processes=None, memory=None), processes=1, memory_bytes=1).directories == ()


def test_a_group_that_cannot_be_made_whole_is_not_made(tmp_path: Path) -> None:
    (tmp_path / 'processes').mkdir()
    controllers = Controllers(processes=tmp_path / 'processes', memory=tmp_path / 'none')
    with pytest.raises(FileNotFoundError):
        make_group(controllers, processes=1, memory_bytes=1)
    assert list((tmp_path / 'processes').iterdir()) == []


def test_a_group_that_is_busy_is_removed_a_moment_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([OSError(errno.EBUSY, 'busy'), OSError(errno.EBUSY, 'busy'), None])
    tried: list[Path] = []

    def rmdir(path: Path) -> None:
        tried.append(path)
        if (answer := next(answers)) is not None:
            raise answer

    monkeypatch.setattr(Path, 'rmdir', rmdir)
    cgroups.Group(directories=(tmp_path,)).remove()
    assert tried == [tmp_path] * 3


def test_a_group_that_stays_busy_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, '_REMOVE_ATTEMPTS', 2)
    tried: list[Path] = []

    def rmdir(path: Path) -> None:
        tried.append(path)
        raise OSError(errno.EBUSY, 'busy')

    monkeypatch.setattr(Path, 'rmdir', rmdir)
    cgroups.Group(directories=(tmp_path,)).remove()
    assert tried == [tmp_path] * 2


def test_what_the_dead_left_behind_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this namespace by the id of the owner; of others, where an id means nothing, when it is old enough."""
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    here = Path('/proc/self/ns/pid').stat().st_ino
    names = {
        'ours': f'pydantic-deep-group-{here}-{os.getpid()}-x',
        'dead': f'pydantic-deep-group-{here}-999999999-x',
        'foreign': 'pydantic-deep-group-1-999999999-x',
        'old': f'pydantic-deep-group-1-{os.getpid()}-x',
        'busy': f'pydantic-deep-group-{here}-999999999-y',
        'other kind': f'pydantic-deep-probe-{here}-999999999-x',
        'other': 'other',
    }
    assert leftovers.prefix_of('group') == names['ours'].removesuffix('x')
    for name in names.values():
        (tmp_path / name).mkdir()
    os.utime(tmp_path / names['old'], (1, 1))
    (tmp_path / names['busy'] / 'child').mkdir()
    remove_stale_groups(Controllers(processes=tmp_path, memory=None))
    left = {kind for kind, name in names.items() if (tmp_path / name).exists()}
    assert left == {'ours', 'foreign', 'busy', 'other kind', 'other'}
    (tmp_path / f'pydantic-deep-probe-{here}-999999999-link').symlink_to('other')
    leftovers.remove_stale_directories('group', 'probe')
    left = {kind for kind, name in names.items() if (tmp_path / name).exists()}
    assert left == {'ours', 'foreign', 'other'}
    monkeypatch.setattr(os, 'geteuid', lambda: 4242)  # who does not own it leaves it
    (tmp_path / names['dead']).mkdir()
    leftovers.remove_stale_directories('group')
    assert (tmp_path / names['dead']).exists()


def test_what_somebody_else_removes_meanwhile_is_not_left_over(tmp_path: Path) -> None:
    assert not leftovers._is_stale(tmp_path / 'pydantic-deep-group-1-1-gone')  # pyright: ignore[reportPrivateUsage]


# Devices, proc, and the disk


def test_who_may_not_make_devices_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*details: object) -> None:
        raise PermissionError(errno.EPERM, 'Operation not permitted')

    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    monkeypatch.setattr(os, 'mknod', refuse)
    assert bwrap.make_devices() is None
    assert list(tmp_path.iterdir()) == []
    bwrap.remove_devices(None)


def test_devices_are_made_for_everybody_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files in the place of devices, which only root can make."""
    made: dict[str, int] = {}

    def make(path: Path, mode: int, device: int) -> None:
        assert stat.S_ISCHR(mode)
        path.touch(mode=0o600)
        made[path.name] = device

    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    monkeypatch.setattr(os, 'mknod', make)
    directory = bwrap.make_devices()
    assert directory is not None
    names = ('null', 'zero', 'full', 'random', 'urandom', 'tty')
    assert made == {name: os.stat(f'/dev/{name}').st_rdev for name in names}
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path(directory).iterdir()} == {0o666}
    bwrap.remove_devices(directory)
    assert list(tmp_path.iterdir()) == []


def test_who_owns_no_device_uses_those_of_the_host() -> None:
    own, hosts = (list(bwrap._kernel_files(1, devices)) for devices in ('/made', None))  # pyright: ignore[reportPrivateUsage]
    assert own.count('--dev-bind') == 6
    assert hosts.count('--dev-bind') == 0
    assert hosts.count('--dev') == 1


def test_only_root_needs_most_of_proc_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = bwrap._hidden.__wrapped__  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(os, 'geteuid', lambda: 1000)
    assert hidden() == ([], ['/proc/cmdline', '/proc/key-users', '/proc/keys'])
    monkeypatch.setattr(os, 'geteuid', lambda: 0)
    directories, files = hidden()
    assert '/proc/irq' in directories
    assert {*files} > {'/proc/cmdline', '/proc/keys'}
    assert '/proc/meminfo' not in files


def test_a_system_with_separate_directories_is_shown_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'bin').mkdir()
    (tmp_path / 'lib').symlink_to('usr/lib')
    monkeypatch.setattr(bwrap, '_TOP', tmp_path)
    options = list(bwrap._system(lambda data: '9', network=True))  # pyright: ignore[reportPrivateUsage]
    assert options[3:9] == ['--ro-bind', f'{tmp_path}/bin', '/bin', '--symlink', 'usr/lib', '/lib']
    assert '/etc/resolv.conf' in options


def test_the_disk_is_measured_no_further_than_needed(tmp_path: Path) -> None:
    for number in range(20):
        directory = tmp_path / f'd{number}'
        directory.mkdir()
        (directory / 'file').write_bytes(b'x' * 10_000)
    os.link(tmp_path / 'd0/file', tmp_path / 'd0/again')
    root = ConfinedRoot(path=str(tmp_path))
    size_bytes, files, is_complete = measure(root, SandboxLimits())
    assert (files, is_complete) == (41, True)
    assert size_bytes >= 200_000
    assert measure(root, SandboxLimits(disk_files=25))[1] == 26
    (tmp_path / 'd0/closed').symlink_to('.')
    assert measure(root, SandboxLimits(disk_files=1))[1] == 2


def test_a_disk_with_directories_that_no_path_leads_to_is_not_measured_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'a/b/c').mkdir(parents=True)
    root = ConfinedRoot(path=str(tmp_path))
    assert measure(root, SandboxLimits())[1:] == (3, True)
    monkeypatch.setattr('pydantic_deep_backends.sandbox._disk_usage.MAX_DEPTH', 1)
    assert measure(root, SandboxLimits())[1:] == (2, False)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


class Watched:
    """A directory with 20 files of a page, and a disk whose room is said."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(20):
            (directory / f'f{number}').write_bytes(b'x' * 4096)
        self.room: disk.FreeSpace = (1_000_000, 1000)
        self.ledger = disk.DiskUsageRecord()
        self._root = ConfinedRoot(path=str(directory))
        monkeypatch.setattr(disk.DiskWatch, '_look', self._look)

    def _look(self, *watch: object) -> disk.FreeSpace:
        return self.room

    def begin(self, limits: SandboxLimits) -> disk.DiskWatch:
        watch = disk.DiskWatch(self._root, limits, self.ledger)
        watch.begin()
        return watch


def test_what_short_commands_write_one_after_the_other_is_counted(watched: Watched) -> None:
    limits = SandboxLimits(disk_bytes=16_000)
    assert watched.begin(limits)() is None  # counted; it has written nothing itself
    for lost in (500, 1000):
        watched.room = (1_000_000 - lost, 1000)
        assert watched.begin(limits)() is None  # too little since then
    watch = watched.begin(limits)
    watched.room = (1_000_000 - 1001, 1000)
    assert watch() == 'ended: the workspace may take 16,000 bytes on the disk and took more'


def test_a_command_may_make_room_in_a_workspace_that_is_too_full(watched: Watched) -> None:
    watch = watched.begin(SandboxLimits(disk_bytes=1, disk_files=1))
    watched.room = (1_004_096, 1001)
    assert watch() is None
    watch = watched.begin(SandboxLimits(disk_files=1))
    watched.ledger.counted_at = None
    watched.room = (1_004_096, 1000)
    assert watch() == 'ended: the workspace may have 1 files and had more'


def test_a_workspace_that_takes_too_long_to_count_is_judged_by_the_disk(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, '_COUNT_SECONDS', -1.0)
    limits = SandboxLimits(disk_bytes=1000, disk_files=10)
    watch = watched.begin(limits)
    assert watch() is None
    watched.room = (999_500, 995)
    assert watch() is None
    watched.room = (999_500, 989)
    assert watch() == 'ended: the disk lost 11 files while the command ran'
    watched.room = (998_999, 989)
    assert watch() == 'ended: the disk lost 1,001 bytes while the command ran'
