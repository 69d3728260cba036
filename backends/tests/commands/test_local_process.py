"""Commands of `LocalBackend`: plain processes, ended with all descendants, and the real path of the directory."""

# ruff: noqa: ASYNC110, ASYNC220, ASYNC230 - inspects real processes from outside

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from pydantic_deep_backends import (
    BackendUnavailableError,
    CommandResult,
    CommandTimeoutError,
    LocalBackend,
    OutsideRootError,
    SupportsCommands,
)
from pydantic_deep_backends.conformance import BackendSuite
from pydantic_deep_backends.protocol import SandboxProtocol

pytestmark = pytest.mark.anyio


def with_commands(root: Path) -> SandboxProtocol:
    backend = LocalBackend(root, allow_commands=True)
    assert isinstance(backend, SandboxProtocol)
    return backend


class TestLocalBackendWithCommands(BackendSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> SandboxProtocol:
        return with_commands(tmp_path)

    @pytest.fixture
    def tree_root(self) -> str:
        return '/conformance'


def test_commands_are_available_only_where_allowed(tmp_path: Path) -> None:
    assert not isinstance(LocalBackend(tmp_path), SupportsCommands)
    assert repr(with_commands(tmp_path)) == f'LocalBackend({str(tmp_path)!r}, allow_commands=True)'


def test_commands_need_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('sys.platform', 'darwin')
    with pytest.raises(BackendUnavailableError, match="need Linux, and this is 'darwin'"):
        LocalBackend(tmp_path, allow_commands=True)
    LocalBackend(tmp_path)


# Path of the directory


async def test_directory_appears_under_its_real_path(tmp_path: Path) -> None:
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to('real')
    backend = with_commands(tmp_path / 'link')
    assert await backend.working_dir() == str(tmp_path / 'real')
    assert (await backend.run(['pwd', '-P'])).stdout == f'{tmp_path}/real\n'
    await backend.write_bytes(f'{tmp_path}/real/file', b'x')
    assert [entry.path for entry in await backend.list_dir(f'{tmp_path}/real')] == [f'{tmp_path}/real/file']
    assert backend.ref == LocalBackend(tmp_path / 'real').ref


async def test_paths_beside_the_root_are_inaccessible(tmp_path: Path) -> None:
    (tmp_path / 'root').mkdir()
    (tmp_path / 'beside').write_text('secret')
    backend = with_commands(tmp_path / 'root')
    operations: list[Callable[[str], Awaitable[object]]] = [backend.read_bytes, backend.stat, backend.list_dir]
    for operation in operations:
        with pytest.raises(FileNotFoundError, match='There is nothing outside of'):
            await operation(f'{tmp_path}/beside')
    assert not await backend.exists(f'{tmp_path}/beside')
    changes: list[Callable[[str], Awaitable[object]]] = [backend.make_dir, backend.remove]
    changes.append(lambda path: backend.write_bytes(path, b''))
    for change in changes:
        with pytest.raises(OutsideRootError, match='is outside of') as caught:
            await change(f'{tmp_path}/beside')
        assert (caught.value.path, caught.value.root) == (f'{tmp_path}/beside', f'{tmp_path}/root')
    assert (tmp_path / 'beside').read_text() == 'secret'


async def test_missing_root_is_unavailable_before_and_after_a_command(tmp_path: Path) -> None:
    backend = with_commands(tmp_path / 'root')
    with pytest.raises(BackendUnavailableError):
        await backend.run(['true'])
    (tmp_path / 'root').mkdir()
    with pytest.raises(BackendUnavailableError):
        await backend.run(['rmdir', str(tmp_path / 'root')])


# Termination of commands


async def test_asyncio_cancellation_leaves_nothing_behind(tmp_path: Path) -> None:
    backend = with_commands(tmp_path)
    task = asyncio.create_task(backend.run('echo $$ > pid; exec sleep 600', shell=True))
    pid = await pid_in(tmp_path / 'pid')
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # cancelled again while the process is being ended
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path('/proc', str(pid)).exists()


async def test_command_cancelled_before_start_never_starts(tmp_path: Path) -> None:
    backend = with_commands(tmp_path)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await backend.run('echo x > file', shell=True)
    assert os.listdir(tmp_path) == []


async def test_command_can_close_its_output_and_continue(tmp_path: Path) -> None:
    result = await with_commands(tmp_path).run('exec >&- 2>&-; echo x > file; exit 4', shell=True)
    assert (result.exit_code, (tmp_path / 'file').read_text()) == (4, 'x\n')


@pytest.mark.slow
async def test_command_that_kills_its_supervisor_is_killed(tmp_path: Path) -> None:
    backend = with_commands(tmp_path)
    result = await backend.run('kill -KILL $PPID; exec sleep 600', shell=True, timeout=60)
    assert result == CommandResult(exit_code=-9, stdout='', stderr='')


async def test_command_that_stops_its_supervisor_is_still_ended(tmp_path: Path) -> None:
    backend = with_commands(tmp_path)
    with pytest.raises(CommandTimeoutError):
        await backend.run('kill -STOP $PPID; exec sleep 600', shell=True, timeout=0.5)


async def test_output_held_open_by_another_process_is_not_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('pydantic_deep_backends.commands._execution._DRAIN_SECONDS', 0.1)
    backend = with_commands(tmp_path)
    os.mkfifo(tmp_path / 'pid')
    holder = subprocess.Popen(
        [sys.executable, '-c', 'import os; pid = open("pid").read().strip(); f = open(f"/proc/{pid}/fd/1", "w"); '
         'open("held", "w").close(); input()'],
        cwd=tmp_path, stdin=subprocess.PIPE, env={**os.environ},
    )  # fmt: skip
    with holder:
        result = await backend.run('echo $$ > pid; until [ -e held ]; do sleep 0.01; done; echo done', shell=True)
        assert result.stdout == 'done\n'
        assert holder.poll() is None
        assert holder.stdin is not None
        holder.stdin.write(b'\n')


@pytest.mark.slow
async def test_commands_leave_no_open_descriptors_or_zombies(
    tmp_path: Path, children: Callable[[], set[str]], descriptors: Callable[[], list[str]]
) -> None:
    backend = with_commands(tmp_path)
    await backend.run(['true'])
    before = descriptors(), children()
    for _ in range(3):
        await backend.run('sleep 600 & exit 1', shell=True)
        with pytest.raises(CommandTimeoutError):
            await backend.run(['sleep', '600'], timeout=0.05)
    assert (descriptors(), children()) == before


async def test_command_inherits_no_descriptors(tmp_path: Path) -> None:
    with open(tmp_path / 'secret', 'w') as secret:
        os.set_inheritable(secret.fileno(), True)
        result = await with_commands(tmp_path).run(['ls', '/proc/self/fd'])
    assert result.stdout.split() == ['0', '1', '2', '3']  # 3 is opened by `ls` itself


async def test_command_does_not_inherit_signals_ignored_by_python(tmp_path: Path) -> None:
    result = await with_commands(tmp_path).run(['grep', 'SigIgn', '/proc/self/status'])
    ignored = int(result.stdout.split()[1], 16)
    assert [number for number in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (number - 1) & 1] == []


async def pid_in(path: Path) -> int:
    with anyio.fail_after(60):
        while not (path.exists() and path.read_text().endswith('\n')):
            await anyio.sleep(0.01)
    return int(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    'backend',
    [
        'LocalBackend(root, allow_commands=True)',
        pytest.param(
            'SandboxBackend(root)',
            marks=pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed'),
        ),
    ],
)
def test_killed_process_leaves_nothing_behind(tmp_path: Path, backend: str) -> None:
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, '-c', KILLED.format(backend=backend), str(tmp_path)], env=env) as process:
        while len(living(tmp_path)) != 3:
            assert process.poll() is None
        process.kill()
    while living(tmp_path):
        pass


KILLED = """
import sys
import anyio
from pydantic_deep_backends import LocalBackend, SandboxBackend

root = sys.argv[1]
backend = {backend}
anyio.run(lambda: backend.run('sleep 600 & setsid sleep 600 & wait', shell=True))
"""


def living(root: Path) -> list[str]:
    """Return the commands of all processes with working directory `root`, inside or outside the sandbox."""
    status = root.stat()
    found: list[str] = []
    for directory in Path('/proc').glob('[0-9]*'):
        try:
            if os.path.samestat((directory / 'cwd').stat(), status):
                found.append((directory / 'comm').read_text().strip())
        except OSError:
            continue
    return [name for name in found if name in ('sh', 'sleep')]
