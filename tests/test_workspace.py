"""Backends as pydantic-ai workspaces: its conformance suite, errors and refs.

The suite skips, for backends without commands, the rules about commands and those that create links or change modes by
commands (the tests of the backends cover them), and concurrent first use (these backends exist before their use).

"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import anyio
import pytest
from pydantic_ai.workspaces import (
    LocalWorkspaceBackend,
    SupportsCommands,
    SupportsFilesystem,
    SupportsRealpath,
    Workspace,
    WorkspaceBackend,
    WorkspaceReadOnlyError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from pydantic_deep import CompositeBackend, LocalBackend, ReadOnlyBackend, StateBackend, as_workspace
from pydantic_deep_backends import BackendProtocol, CommandResult, CommandTimeoutError, OverlayBackend, SandboxBackend

pytestmark = pytest.mark.anyio


class OurSuite(WorkspaceBackendSuite):
    """The suite for backends without commands."""

    @pytest.fixture
    def has_real_posix_shell(self) -> bool:
        return False


class TestState(OurSuite):
    @pytest.fixture
    def backend(self) -> WorkspaceBackend:
        return as_workspace(StateBackend())


class TestLocal(OurSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> WorkspaceBackend:
        return as_workspace(LocalBackend(tmp_path))

    @pytest.fixture
    def destructive_backend(self, tmp_path: Path) -> Callable[[], WorkspaceBackend]:
        (tmp_path / 'short-lived').mkdir()
        return lambda: as_workspace(LocalBackend(tmp_path / 'short-lived'))

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: as_workspace(LocalBackend(ref.id))

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        return remove_directory


class CommandSuite(WorkspaceBackendSuite):
    """The suite for backends with commands, with variants of the rules that cannot hold for them."""

    @pytest.fixture
    def filesystem_honors_shell_permissions(self) -> bool:
        return os.geteuid() != 0  # file operations run in this process, whatever user the commands have

    async def test_background_child_does_not_hold_up_completed_command(
        self, backend: WorkspaceBackend, has_real_posix_shell: bool, can_detect_exit_with_inherited_output_pipes: bool
    ) -> None:
        """Background processes end with their command; the original rule expects them to continue."""
        assert isinstance(backend, SupportsCommands)
        result = await backend.run('(sleep 600; echo late) & printf done', shell=True)
        assert (result.exit_code, result.stdout) == (0, 'done')

    async def test_a_backend_attached_by_ref_reaches_a_detached_process(self, backend: WorkspaceBackend) -> None:
        """The rule of newer releases expects the detached process to continue. Here it ends with its command."""
        workspace = Workspace(backend)
        detached = 'setsid sh -c ": > started; sleep 600" < /dev/null > /dev/null 2>&1 &'
        result = await workspace.run(f'{detached} until [ -e started ]; do sleep 0.01; done; echo $!', shell=True)
        assert result.exit_code == 0
        for path in Path('/proc').glob('[0-9]*/cmdline'):
            with suppress(OSError):  # the process has ended
                assert b': > started; sleep 600' not in path.read_bytes()

    async def test_realpath_and_entries_follow_symlinks(self, backend: WorkspaceBackend) -> None:
        """The original rule also uses paths with `..`, which these backends refuse."""
        workspace = Workspace(backend)
        root = await workspace.working_dir()
        assert (
            await workspace.run('mkdir -p a/b; ln -s b a/rel; ln -s ../out a/up; ln -s a link', shell=True)
        ).stderr == ''
        assert await workspace.realpath(f'{root}/a/rel/missing') == f'{root}/a/b/missing'
        assert await workspace.realpath(f'{root}/link/up/missing') == f'{root}/out/missing'
        assert (await workspace.stat('link')).is_dir
        assert {entry.name: entry.is_dir for entry in await workspace.list_dir('link')} == {
            'b': True,
            'rel': True,
            'up': False,
        }
        assert await workspace.realpath(f'{root}/a/rel/..') == f'{root}/a'


class TestLocalWithCommands(CommandSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> WorkspaceBackend:
        return as_workspace(LocalBackend(tmp_path, allow_commands=True))

    @pytest.fixture
    def destructive_backend(self, tmp_path: Path) -> Callable[[], WorkspaceBackend]:
        (tmp_path / 'short-lived').mkdir()
        return lambda: as_workspace(LocalBackend(tmp_path / 'short-lived', allow_commands=True))

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: as_workspace(LocalBackend(ref.id, allow_commands=True))

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        return remove_directory


@pytest.mark.skipif(shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap')
class TestSandbox(CommandSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> WorkspaceBackend:
        return as_workspace(SandboxBackend(tmp_path))

    @pytest.fixture
    def destructive_backend(self, tmp_path: Path) -> Callable[[], WorkspaceBackend]:
        (tmp_path / 'short-lived').mkdir()
        return lambda: as_workspace(SandboxBackend(tmp_path / 'short-lived'))

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: as_workspace(SandboxBackend(ref.id))

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        return remove_directory

    async def test_cancellation_stops_foreground_work(
        self, backend: WorkspaceBackend, has_real_posix_shell: bool
    ) -> None:
        """The original rule looks up a process by its id, but each sandboxed command has its own process ids."""
        assert isinstance(backend, SupportsCommands)

        async def run() -> None:
            assert isinstance(backend, SupportsCommands)
            await backend.run('while :; do echo beat >> beats; sleep 0.01; done', shell=True)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            while not await Workspace(backend).exists('beats'):  # noqa: ASYNC110 - another process writes it
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        before = await Workspace(backend).read_bytes('beats')
        await backend.run(['sleep', '0.1'])
        assert await Workspace(backend).read_bytes('beats') == before


async def remove_directory(backend: WorkspaceBackend) -> None:
    assert backend.ref is not None
    shutil.rmtree(backend.ref.id)


class TestComposite(OurSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> WorkspaceBackend:
        return as_workspace(CompositeBackend(LocalBackend(tmp_path), {'/memory': StateBackend()}))


class TestOverlayOfState(OurSuite):
    @pytest.fixture
    def backend(self) -> WorkspaceBackend:
        return as_workspace(OverlayBackend(StateBackend()))


class TestOverlayOfLocal(OurSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> WorkspaceBackend:
        return as_workspace(OverlayBackend(LocalBackend(tmp_path)))


class TestOverlayOfWorkspace(OurSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> WorkspaceBackend:
        return as_workspace(OverlayBackend(cast('BackendProtocol', LocalWorkspaceBackend(tmp_path))))


class TestReadOnly:
    """The suite writes files first, so the rules for a read-only backend are listed here."""

    async def test_read_only_workspace_reads_and_refuses_every_change(self) -> None:
        workspace = as_workspace(ReadOnlyBackend(StateBackend({'/a.txt': 'text'})))
        assert isinstance(workspace, SupportsFilesystem)
        assert await workspace.read_bytes('/a.txt') == b'text'
        with pytest.raises(WorkspaceReadOnlyError, match='is read-only'):
            await workspace.write_bytes('/a.txt', b'x')
        with pytest.raises(WorkspaceReadOnlyError):
            await workspace.make_dir('/d')
        with pytest.raises(WorkspaceReadOnlyError):
            await workspace.remove('/a.txt')


async def test_all_operations_are_delegated() -> None:
    backend = StateBackend({'/d/a.txt': 'text'})
    workspace = as_workspace(backend)
    assert isinstance(workspace, SupportsFilesystem)
    assert isinstance(workspace, SupportsRealpath)
    assert (await workspace.stat('/d/a.txt')).size == 4
    assert [(e.name, e.path, e.is_dir) for e in await workspace.list_dir('/')] == [('d', '/d', True)]
    assert await workspace.realpath('/d/new') == '/d/new'
    await workspace.make_dir('/empty')
    await workspace.remove('/d')
    assert (await workspace.exists('/d'), await workspace.exists('/empty')) == (False, True)


async def test_missing_directory_is_an_unavailable_workspace(tmp_path: Path) -> None:
    workspace = as_workspace(LocalBackend(tmp_path / 'gone'))
    with pytest.raises(WorkspaceUnavailableError, match='Create it'):
        await workspace.working_dir()


def test_workspace_is_returned_unchanged(tmp_path: Path) -> None:
    theirs = LocalWorkspaceBackend(tmp_path)
    assert as_workspace(theirs) is theirs


def test_ref_names_the_backend(tmp_path: Path) -> None:
    assert as_workspace(LocalBackend(tmp_path)).ref == WorkspaceRef(provider='pydantic-deep-local', id=str(tmp_path))


class Echo(StateBackend):
    """A backend with fake commands: it echoes each command, and `sleep` times out."""

    async def run(
        self, command: object, *, shell: bool = False, env: object = None, timeout: float | None = None
    ) -> CommandResult:
        if command == ['sleep']:
            raise CommandTimeoutError('took too long', stdout='half', stderr='way')
        return CommandResult(exit_code=3, stdout=f'{command} {shell} {env} {timeout}', stderr='e')


async def test_commands_are_delegated_if_the_backend_runs_them() -> None:
    assert not isinstance(as_workspace(StateBackend()), SupportsCommands)
    workspace = Workspace(as_workspace(Echo()))
    result = await workspace.run('ls', shell=True, env={'A': '1'}, timeout=2)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "ls True {'A': '1'} 2", 'e')
    with pytest.raises(WorkspaceTimeoutError, match='took too long') as late:
        await workspace.run(['sleep'])
    assert (late.value.stdout, late.value.stderr) == ('half', 'way')


async def test_overlay_of_a_workspace_merges_into_it(tmp_path: Path) -> None:
    tmp_path = tmp_path.resolve()
    (tmp_path / 'a.txt').write_text('one\ntwo\nthree\n')
    (tmp_path / 'old').mkdir()
    (tmp_path / 'old/b.txt').write_text('b')
    overlay = OverlayBackend(cast('BackendProtocol', LocalWorkspaceBackend(tmp_path)))
    assert not isinstance(as_workspace(overlay), SupportsCommands)
    await overlay.write_bytes(f'{tmp_path}/a.txt', b'ONE\ntwo\nthree\n')
    await overlay.write_bytes(f'{tmp_path}/new/c.txt', b'c')
    await overlay.remove(f'{tmp_path}/old')
    (tmp_path / 'a.txt').write_text('one\ntwo\nTHREE\n')
    merged = await overlay.merge()
    assert merged.changed == (f'{tmp_path}/a.txt', f'{tmp_path}/new/c.txt')
    assert merged.removed == (f'{tmp_path}/old/b.txt',)
    assert merged.conflicts == ()
    assert (tmp_path / 'a.txt').read_text() == 'ONE\ntwo\nTHREE\n'
    assert sorted(path.name for path in tmp_path.iterdir()) == ['a.txt', 'new']
