"""`SandboxBackend`: paths, variables, mounts, limits, and behavior without isolation."""

# ruff: noqa: ASYNC110, ASYNC220, ASYNC221 - inspects real processes from outside

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from pydantic_deep_backends import (
    BackendRef,
    BackendUnavailableError,
    CommandTimeoutError,
    GrepMatch,
    InvalidPathError,
    LocalBackend,
    OutsideRootError,
    SandboxBackend,
    SandboxProtocol,
    SandboxUnavailableError,
)
from pydantic_deep_backends.conformance import BackendSuite
from pydantic_deep_backends.sandbox import _bwrap as bwrap
from pydantic_deep_backends.sandbox import _isolation_check as promises
from pydantic_deep_backends.sandbox._cgroups import find_controllers
from pydantic_deep_backends.sandbox._stale_resources import prefix_of

from .conftest import write_program

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'),
]


@pytest.fixture
def backend(tmp_path: Path) -> SandboxBackend:
    return SandboxBackend(tmp_path)


class TestSandboxBackend(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> SandboxBackend:
        return SandboxBackend(tmp_path)

    @pytest.fixture
    def tree_root(self) -> str:
        return '/conformance'


# Construction


def test_constructor_starts_and_looks_up_nothing(tmp_path: Path) -> None:
    backend = SandboxBackend(tmp_path / 'none', bwrap='/none', network=True, env=['A'], read_only={'/a': '/none'})
    assert isinstance(backend, SandboxProtocol)
    assert repr(backend) == f'SandboxBackend({str(tmp_path / "none")!r})'


@pytest.mark.parametrize('path', ['/', '/workspace', '/workspace/a', '/usr/a', '/tmp', '/proc/1', '/dev/null', '/bin'])
def test_reserved_mount_point_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match='Nothing can be mounted at'):
        SandboxBackend(tmp_path, read_only={path: '/etc'})


@pytest.mark.parametrize('path', ['a', '/a/../b', '/a\nb'])
def test_malformed_mount_point_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidPathError):
        SandboxBackend(tmp_path, read_only={path: '/etc'})


def test_mount_source_must_be_absolute_and_without_nul(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="host path 'relative' is relative"):
        SandboxBackend(tmp_path, read_only={'/a': 'relative'})
    with pytest.raises(ValueError, match='has a NUL'):  # NUL separates the options of bwrap
        SandboxBackend(tmp_path, read_only={'/a': '/usr\0/b\0--bind\0/\0/host'})


def test_invalid_variable_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match='Pass a list'):
        SandboxBackend(tmp_path, env='PATH')
    with pytest.raises(ValueError, match='cannot be set'):
        SandboxBackend(tmp_path, env={'A=': 'b'})


# Paths


async def test_directory_appears_as_workspace(backend: SandboxBackend, tmp_path: Path) -> None:
    assert await backend.working_dir() == '/workspace'
    await backend.write_bytes('/workspace/d/file', b'needle\n')
    assert (tmp_path / 'd/file').read_bytes() == b'needle\n'
    assert backend.ref == BackendRef(provider='sandbox', id=str(tmp_path)) != LocalBackend(tmp_path).ref
    assert [(entry.name, entry.path) for entry in await backend.list_dir('/')] == [('workspace', '/workspace')]
    assert (await backend.stat('/')).is_dir
    assert await backend.realpath('/') == '/'
    await backend.make_dir('/')
    assert (await backend.glob('**/*')).paths == ('/workspace/d/file',)
    assert (await backend.glob('d/*')).paths == ()
    assert (await backend.glob('d/*', '/workspace')).paths == ('/workspace/d/file',)
    match = GrepMatch(path='/workspace/d/file', line_number=1, line='needle')
    for path in ('/', '/workspace', '/workspace/d/file'):
        assert (await backend.grep('needle', path)).matches == (match,)
    assert (await backend.glob('other/**')).paths == ()


async def test_paths_outside_the_workspace_are_inaccessible(backend: SandboxBackend) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing outside of '/workspace'. Use a path below it"):
        await backend.read_bytes('/etc/passwd')
    with pytest.raises(OutsideRootError, match="'/etc/x' is outside of '/workspace'"):
        await backend.write_bytes('/etc/x', b'')
    with pytest.raises(IsADirectoryError):
        await backend.read_bytes('/')
    with pytest.raises(ValueError, match='and cannot be removed'):
        await backend.remove('/workspace')


async def test_snapshots_equal_those_of_the_directory(backend: SandboxBackend, tmp_path: Path) -> None:
    local = LocalBackend(tmp_path)
    await backend.run('mkdir -p a/b; echo x > a/b/c; echo y > d; chmod +x d', shell=True)
    tree = await backend.snapshot()
    assert sorted(tree) == ['/a/b/c', '/d']
    assert tree == await local.snapshot()
    await backend.run('mv d e; rm -r a; cp e f', shell=True)
    assert await backend.changes(tree) == await local.changes(tree)
    await backend.run('mv e d', shell=True)
    await backend.write_bytes('/workspace/other', b'x\n')  # same contents as a removed file
    await backend.restore(tree)
    assert await local.snapshot() == tree


async def test_absolute_links_resolve_like_inside_the_sandbox(backend: SandboxBackend, tmp_path: Path) -> None:
    await backend.run('mkdir d; echo x > d/file; ln -s /workspace/d/file near; ln -s /etc/passwd far', shell=True)
    assert await backend.read_bytes('/workspace/near') == b'x\n'
    assert await backend.realpath('/workspace/near') == '/workspace/d/file'
    with pytest.raises(OutsideRootError):
        await backend.read_bytes('/workspace/far')
    assert (await backend.run(['cat', 'far'])).stdout.startswith('sandbox:')


def test_path_of_maps_host_paths_into_the_sandbox(tmp_path: Path) -> None:
    for name in ('root/d', 'skills/one', 'other'):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / 'link').symlink_to('skills')
    backend = SandboxBackend(tmp_path / 'root', read_only={'/skills': tmp_path / 'link', '/skills2': '/none'})
    assert backend.path_of(tmp_path / 'root') == '/workspace'
    assert backend.path_of(tmp_path / 'root/d/new') == '/workspace/d/new'
    assert backend.path_of(tmp_path / 'skills/one/run.py') == '/skills/one/run.py'
    assert backend.path_of(str(tmp_path / 'link/one')) == '/skills/one'
    assert backend.path_of(tmp_path / 'other') is None
    assert backend.path_of(tmp_path / 'root2') is None


async def test_mounts_are_readable_and_read_only(tmp_path: Path) -> None:
    (tmp_path / 'root').mkdir()
    (tmp_path / 'skill').mkdir()
    (tmp_path / 'skill/run').write_text('hello')
    backend = SandboxBackend(tmp_path / 'root', read_only={'/opt/skill': tmp_path / 'skill'})
    result = await backend.run('cat /opt/skill/run; echo x > /opt/skill/run; rm -f /opt/skill/run', shell=True)
    assert result.stdout == 'hello'
    assert result.stderr.count('Read-only file system') == 2
    assert (tmp_path / 'skill/run').read_text() == 'hello'
    with pytest.raises(FileNotFoundError):
        await backend.read_bytes('/opt/skill/run')


# Environment variables


async def test_command_has_a_minimal_environment(backend: SandboxBackend) -> None:
    result = await backend.run(['/usr/bin/env'])
    assert sorted(line.partition('=')[0] for line in result.stdout.splitlines()) == ['HOME', 'LANG', 'PATH']


async def test_variables_are_inherited_by_name_or_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('WANTED', 'a=b\nc')
    monkeypatch.setenv('OTHER', 'secret')
    script = 'printf "%s|%s|%s" "$WANTED" "$OTHER" "$HOME"'
    named = SandboxBackend(tmp_path, env=['WANTED', 'MISSING'])
    assert (await named.run(script, shell=True)).stdout == 'a=b\nc||/tmp'
    given = SandboxBackend(tmp_path, env={'WANTED': '', 'HOME': '/workspace'})
    assert (await given.run(script, shell=True, env={'OTHER': 'x'})).stdout == '|x|/workspace'


async def test_variables_appear_only_in_the_environment_of_the_command(backend: SandboxBackend) -> None:
    script = 'grep -la canary /proc/[0-9]*/cmdline /proc/[0-9]*/environ; test "$SECRET" = canary; exec 2>&- sleep 600'

    async def host_lines() -> list[str]:
        found: list[str] = []
        for path in Path('/proc').glob('[0-9]*/cmdline'):
            try:
                found.append(path.read_bytes().decode(errors='replace'))
            except OSError:
                continue
        return found

    with pytest.raises(CommandTimeoutError) as caught:
        await backend.run(['/bin/sh', '-c', script], env={'SECRET': 'canary'}, timeout=0.5)
    lines = caught.value.stdout.split()
    assert [line for line in lines if line.endswith('environ') and '/proc/1/' in line] == []
    assert not any('SECRET' in line and 'grep' not in line for line in await host_lines())


# Users and permissions


async def test_files_belong_to_the_current_user_on_both_sides(backend: SandboxBackend, tmp_path: Path) -> None:
    await backend.write_bytes('/workspace/ours', b'x')
    result = await backend.run(
        'stat -c %u ours; echo y > ours; echo z > theirs; mkdir d; chmod 700 d; id -u', shell=True
    )
    assert result.stdout == '1000\n1000\n'
    assert {(tmp_path / name).stat().st_uid for name in ('ours', 'theirs', 'd')} == {os.geteuid()}
    await backend.write_bytes('/workspace/theirs', b'w')
    await backend.write_bytes('/workspace/d/new', b'w')
    assert (await backend.run('cat theirs d/new; rm -r ours theirs d; ls -A', shell=True)).stdout == 'ww'


# Termination


async def test_asyncio_cancellation_leaves_nothing_behind(backend: SandboxBackend, tmp_path: Path) -> None:
    task = asyncio.create_task(backend.run('setsid sleep 600 & echo > started; sleep 600', shell=True))
    with anyio.fail_after(60):
        while not (tmp_path / 'started').exists():
            await anyio.sleep(0.01)
    assert len(sandboxes_of(tmp_path)) > 0
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sandboxes_of(tmp_path) == []


def sandboxes_of(root: Path) -> list[str]:
    """Return the processes of this machine that have `root` mounted as their workspace."""
    found: list[str] = []
    for directory in Path('/proc').glob('[0-9]*'):
        try:
            if f'{root.name} /workspace ' in (directory / 'mountinfo').read_text():
                found.append(directory.name)
        except OSError:
            continue
    return found


@pytest.mark.slow
async def test_sandbox_commands_leave_no_descriptors_or_temporary_files(
    backend: SandboxBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    children: Callable[[], set[str]],
    descriptors: Callable[[], list[str]],
) -> None:
    (tmp_path / 'temporary').mkdir()
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'temporary'))
    await backend.run(['true'])
    before = descriptors(), children()
    for _ in range(3):
        await backend.run('sleep 600 & exit 1', shell=True)
        with pytest.raises(CommandTimeoutError):
            await backend.run(['sleep', '600'], timeout=0.05)
    assert (descriptors(), children()) == before
    assert os.listdir(tmp_path / 'temporary') == []
    assert groups() == []


def groups() -> list[Path]:
    """Return the control groups created by this process."""
    found = find_controllers()
    parents = [parent for parent in (found.processes, found.memory) if parent is not None]
    return [path for parent in parents for path in parent.glob(f'{prefix_of("group")}*')]


async def test_workspace_removed_during_a_command_is_unavailable(tmp_path: Path) -> None:
    root = tmp_path / 'root'
    backend = SandboxBackend(root)
    with pytest.raises(BackendUnavailableError, match='Create it'):
        await backend.run(['true'])
    root.mkdir()
    async with anyio.create_task_group() as group:
        group.start_soon(remove_when_started, root)
        with pytest.raises(BackendUnavailableError, match='Create it'):
            await backend.run('echo > started; sleep 600', shell=True)


async def remove_when_started(root: Path) -> None:
    with anyio.fail_after(60):
        while not (root / 'started').exists():
            await anyio.sleep(0.01)
    shutil.rmtree(root)


# Without isolation


async def test_missing_bubblewrap_is_reported_and_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    with pytest.raises(
        SandboxUnavailableError, match=r'no `bwrap` on the PATH. Install it: `apt-get install bubblewrap'
    ):
        await SandboxBackend(tmp_path).run('echo > file', shell=True)
    with pytest.raises(SandboxUnavailableError, match="'/none/bwrap' cannot be run: No such file"):
        await SandboxBackend(tmp_path, bwrap='/none/bwrap').run('echo > file', shell=True)
    assert os.listdir(tmp_path) == []


async def test_bubblewrap_errors_are_reported(fake: Path) -> None:
    write_program(fake, 'echo "bwrap: No permissions to create new namespace" >&2; exit 1')
    with pytest.raises(
        SandboxUnavailableError, match=r"did not start: 'bwrap: No permissions.*0\.8 or newer"
    ) as caught:
        await SandboxBackend(fake.parent / 'root', bwrap=fake).run('echo > file', shell=True)
    assert caught.value.failed == ()


async def test_unresponsive_bubblewrap_times_out(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap, '_START_SECONDS', 0.1)
    write_program(fake, 'exec sleep 600')
    with pytest.raises(SandboxUnavailableError, match='bwrap did not respond for'):
        await SandboxBackend(fake.parent / 'root', bwrap=fake).run('echo > file', shell=True)


async def test_failure_after_the_first_sandbox_process_is_reported(tmp_path: Path) -> None:
    (tmp_path / 'gone').mkdir()
    backend = SandboxBackend(tmp_path, read_only={'/opt': tmp_path / 'gone'})
    await backend.run(['true'])
    (tmp_path / 'gone').rmdir()
    with pytest.raises(SandboxUnavailableError, match=r'did not start: .*gone'):
        await backend.run(['true'])


async def test_working_dir_is_returned_only_if_commands_can_be_isolated(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailableError, match=r"'/none' cannot be run"):
        await SandboxBackend(tmp_path, bwrap='/none').working_dir()
    with pytest.raises(SandboxUnavailableError, match=r"gone' does not exist, so it cannot be mounted at '/opt'"):
        await SandboxBackend(tmp_path, read_only={'/opt': tmp_path / 'gone'}).working_dir()
    with pytest.raises(BackendUnavailableError, match='Create it'):
        await SandboxBackend(tmp_path / 'none').working_dir()
    assert await SandboxBackend(tmp_path).working_dir() == '/workspace'


async def test_missing_perl_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = SandboxBackend(tmp_path)
    await backend.run(['true'])
    monkeypatch.setattr(bwrap, 'PERL', '/usr/bin/no-perl')
    with pytest.raises(SandboxUnavailableError, match=r'no-perl: No such file.*perl-base'):
        await backend.run(['true'])


@pytest.mark.slow
async def test_error_while_setting_limits_leaves_nothing_behind(
    backend: SandboxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descriptors: Callable[[], list[str]]
) -> None:
    def fail(*details: object, **more: object) -> None:
        raise LookupError('a mistake')

    await backend.run(['true'])
    before = descriptors()
    monkeypatch.setattr(bwrap, 'make_group', fail)
    with pytest.raises(LookupError, match='a mistake'):
        await backend.run('echo > file', shell=True)
    assert descriptors() == before
    assert os.listdir(tmp_path) == []
    assert sandboxes_of(tmp_path) == []


async def test_architecture_without_a_seccomp_filter_is_refused(
    backend: SandboxBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Machine:
        machine = 'riscv64'

    monkeypatch.setattr(promises, '_check', promises._check.__wrapped__)  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(os, 'uname', Machine)
    with pytest.raises(SandboxUnavailableError, match="cannot be filtered on 'riscv64'"):
        await backend.run(['true'])


# Shared network


async def test_host_network_is_shared_only_on_request(tmp_path: Path) -> None:
    script = (
        'use Socket; socket(S, PF_INET, SOCK_STREAM, 0); print connect(S, pack_sockaddr_in(shift, INADDR_LOOPBACK))'
    )
    with socket.create_server(('127.0.0.1', 0)) as listener:
        command = ['perl', '-e', script, str(listener.getsockname()[1])]
        assert (await SandboxBackend(tmp_path, network=True).run(command)).stdout == '1'
        assert (await SandboxBackend(tmp_path).run(command)).stdout == ''


async def test_unix_sockets_cannot_be_created_with_a_shared_network(tmp_path: Path) -> None:
    script = 'use Socket; print socket(S, PF_UNIX, SOCK_STREAM, 0) ? 1 : 0, socketpair(A, B, PF_UNIX, SOCK_STREAM, 0)'
    assert (await SandboxBackend(tmp_path, network=True).run(['perl', '-e', script])).stdout == '01'
    assert (await SandboxBackend(tmp_path).run(['perl', '-e', script])).stdout == '11'


# Without root


@pytest.mark.skipif(os.geteuid() != 0, reason='only root can become somebody else')
def test_sandbox_works_for_unprivileged_users(tmp_path: Path) -> None:
    """Runs in a separate process, which drops its privileges for good."""
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}
    directory = tempfile.mkdtemp()
    os.chown(directory, 54321, 54321)
    try:
        done = subprocess.run(
            [sys.executable, '-c', UNPRIVILEGED, directory],
            capture_output=True,
            text=True,
            check=False,
            env=env,
            timeout=120,
        )
    finally:
        shutil.rmtree(directory)
    assert (done.returncode, done.stdout, done.stderr) == (0, "54321 ['file'] True\n", '')


UNPRIVILEGED = """
import os, sys
import anyio, anyio._backends._asyncio, asyncio, fcntl, resource
from pydantic_deep_backends import SandboxBackend, SandboxLimits
from pydantic_deep_backends.sandbox._perl import read_program
read_program('init.pl'), read_program('isolation_probe.pl')  # this interpreter may be in a directory of root

async def main():
    backend = SandboxBackend(sys.argv[1], limits=SandboxLimits(processes=20))
    await backend.run('echo > file', shell=True)
    bomb = 'for i in $(seq 100); do sleep 5 & done; exit 0'
    refused = (await backend.run(bomb, shell=True)).stderr
    print(os.stat(sys.argv[1] + '/file').st_uid, os.listdir(sys.argv[1]), 'fork' in refused.lower())

os.setgroups([])
os.setgid(54321)
os.setuid(54321)
anyio.run(main)
"""

# Resources of killed processes


@pytest.mark.slow
async def test_resources_of_a_killed_process_are_removed_at_the_next_start(tmp_path: Path) -> None:
    """The process is killed during a command and during the isolation check."""
    (tmp_path / 'root').mkdir()
    (tmp_path / 'tmp').mkdir()
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path), 'TMPDIR': str(tmp_path / 'tmp')}
    owners: list[int] = []
    for mode, kind in (('run', 'command'), ('probe', 'probe')):
        with subprocess.Popen(
            [sys.executable, '-c', DOOMED, str(tmp_path / 'root'), mode], env=env, stdout=subprocess.PIPE
        ) as doomed:
            assert doomed.stdout is not None
            assert doomed.stdout.readline() == f'{kind}\n'.encode()
            owners.append(doomed.pid)
            doomed.kill()
    left = {path.name for path in (tmp_path / 'tmp').iterdir()}
    assert any('-probe-' in name for name in left)
    with anyio.fail_after(60):
        while sandboxes_of(tmp_path / 'root'):
            await anyio.sleep(0.01)
    done = subprocess.run(
        [sys.executable, '-c', DOOMED, str(tmp_path / 'root'), 'once'], env=env, timeout=120, check=True
    )
    assert done.returncode == 0
    assert list((tmp_path / 'tmp').iterdir()) == []
    found = find_controllers()
    here = Path('/proc/self/ns/pid').stat().st_ino
    parents = [parent for parent in (found.processes, found.memory) if parent is not None]
    names = [f'pydantic-deep-*-{here}-{owner}-*' for owner in owners]  # other tests kill processes at the same time
    assert [path for parent in parents for name in names for path in parent.glob(name)] == []


DOOMED = """
import sys, threading, time
import anyio
from pydantic_deep_backends import SandboxBackend
from pydantic_deep_backends.sandbox import _isolation_check as _promises

threading.Timer(100, lambda: __import__('os')._exit(1)).start()
if sys.argv[2] == 'probe':
    def wait(*details, **more):
        print('probe', flush=True)
        time.sleep(90)
    _promises.start_in_sandbox = wait

async def main():
    backend = SandboxBackend(sys.argv[1])
    await backend.working_dir()
    if sys.argv[2] == 'once':
        __import__('os')._exit(0)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: backend.run('echo > started; sleep 90', shell=True))
        while not await backend.exists('/workspace/started'):
            await anyio.sleep(0.01)
        print('command', flush=True)

anyio.run(main)
"""
