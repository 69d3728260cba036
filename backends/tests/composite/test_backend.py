"""Mounts: which backend a path belongs to, which files are hidden, and search and snapshots across them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pydantic_deep_backends import (
    BackendProtocol,
    Command,
    CommandResult,
    CompositeBackend,
    FileChangedError,
    InvalidPathError,
    LocalBackend,
    OutsideRootError,
    SandboxBackend,
    StateBackend,
    SupportsCommands,
    SupportsCompareAndSwap,
    SupportsSearch,
    SupportsSnapshots,
)
from pydantic_deep_backends.protection import PROTECTED_FILES, SupportsProtection, is_protected

from .conftest import Plain, names_in, shown_elsewhere

pytestmark = pytest.mark.anyio


class WithCommands(Plain):
    """Supports commands. Returns the command as its output."""

    async def run(
        self,
        command: Command,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        return CommandResult(exit_code=0, stdout=str(command), stderr='')


def capabilities_of(backend: BackendProtocol) -> list[str]:
    known = (SupportsCommands, SupportsSearch, SupportsCompareAndSwap, SupportsSnapshots)
    return [protocol.__name__ for protocol in known if isinstance(backend, protocol)]


# Mount points


async def test_files_hidden_by_a_mount_are_unchanged() -> None:
    default = StateBackend({'/mem/secret': '1', '/up': 'a file', '/mem/deep/x': '2'})
    backend = CompositeBackend(default, {'/mem': StateBackend({'/seen': ''}), '/up/on': StateBackend()})
    assert await names_in(backend, '/mem') == ['seen']
    assert await names_in(backend, '/up') == ['on']
    assert not await backend.exists('/mem/secret')
    assert (await backend.stat('/up')).is_dir
    assert await default.read_bytes('/mem/secret') == b'1'


async def test_unmounted_missing_paths_cannot_be_listed() -> None:
    backend = CompositeBackend(StateBackend({'/file': ''}), {'/m': StateBackend({'/file': ''})})
    for path in ('/none', '/m/none'):
        with pytest.raises(FileNotFoundError):
            await backend.list_dir(path)
    for path in ('/file', '/m/file'):
        with pytest.raises(NotADirectoryError):
            await backend.list_dir(path)


# Errors show virtual paths


async def test_os_error_shows_the_virtual_path() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': StateBackend({'/d/file': ''})})
    with pytest.raises(FileNotFoundError, match="'/m/d/none'") as caught:
        await backend.read_bytes('/m/d/none')
    assert caught.value.filename == '/m/d/none'
    with pytest.raises(FileNotFoundError) as plain:
        await backend.read_bytes('/none')
    assert plain.value.filename == '/none'


async def test_backend_error_shows_the_virtual_path() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': StateBackend({'/file': '1'})})
    assert isinstance(backend, SupportsCompareAndSwap)
    with pytest.raises(FileChangedError, match="'/m/file' changed") as caught:
        await backend.compare_and_swap('/m/file', b'2', expected=None)
    assert caught.value.path == '/m/file'


async def test_error_message_shows_the_virtual_path() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': Plain({'/file': '1'})})
    with pytest.raises(NotADirectoryError, match="'/m/file' is a file"):
        await backend.glob('*', '/m/file')


async def test_invalid_name_error_shows_the_virtual_path() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': StateBackend()})
    with pytest.raises(InvalidPathError, match='/m/~a') as caught:
        await backend.write_bytes('/m/~a', b'')
    assert caught.value.path == '/m/~a'
    with pytest.raises(InvalidPathError, match='/m/~' + 'a' * 100):
        await backend.write_bytes('/m/~' + 'a' * 300, b'')


class Careless(Plain):
    """Raises errors that name another file."""

    async def read_bytes(self, path: str) -> bytes:
        raise PermissionError(13, 'Permission denied', '/srv/elsewhere')


async def test_error_about_another_path_is_unchanged() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': Careless()})
    with pytest.raises(PermissionError) as caught:
        await backend.read_bytes('/m/file')
    assert caught.value.filename == '/srv/elsewhere'


# Capabilities


def test_composite_capabilities_derive_from_its_parts() -> None:
    assert capabilities_of(CompositeBackend(StateBackend(), {'/m': StateBackend()})) == [
        'SupportsSearch',
        'SupportsCompareAndSwap',
        'SupportsSnapshots',
    ]
    assert capabilities_of(CompositeBackend(StateBackend(), {'/m': Plain()})) == ['SupportsSearch']
    assert capabilities_of(CompositeBackend(Plain(), {'/m': StateBackend()})) == ['SupportsSearch']
    assert capabilities_of(CompositeBackend(WithCommands(), {'/m': Plain()})) == ['SupportsCommands', 'SupportsSearch']
    assert capabilities_of(CompositeBackend(Plain(), {'/m': WithCommands()})) == ['SupportsSearch']


async def test_commands_run_in_the_default_backend() -> None:
    backend = CompositeBackend(WithCommands(), {})
    assert isinstance(backend, SupportsCommands)
    assert (await backend.run(['a'])).stdout == "['a']"


def test_repr_shows_the_parts() -> None:
    backend = CompositeBackend(StateBackend(), {'/m': StateBackend()})
    empty = '<StateBackend of 0 files, 0 bytes>'
    assert repr(backend) == f"CompositeBackend({empty}, {{'/m': {empty}}})"


# Links


async def test_link_is_resolved_within_its_part(tmp_path: Path) -> None:
    (tmp_path / 'real').mkdir()
    (tmp_path / 'link').symlink_to('real')
    (tmp_path / 'other').symlink_to('hidden')
    backend = CompositeBackend(LocalBackend(tmp_path), {'/m': LocalBackend(tmp_path), '/hidden': StateBackend()})
    assert await backend.realpath('/link/x') == '/real/x'
    assert await backend.realpath('/m/link/x') == '/m/real/x'
    assert await backend.realpath('/m') == '/m'
    assert await backend.realpath('/other/x') == '/other/x'


# Directories that do not appear at the root


def test_mount_that_hides_the_command_directory_is_refused(tmp_path: Path) -> None:
    for place in (str(tmp_path), str(tmp_path.parent)):
        with pytest.raises(ValueError, match='would hide all of them from everything except commands'):
            CompositeBackend(shown_elsewhere(tmp_path), {place: StateBackend()})
    CompositeBackend(shown_elsewhere(tmp_path), {f'{tmp_path}/below': StateBackend()})


async def test_outside_root_error_shows_the_root_as_mounted(tmp_path: Path) -> None:
    with pytest.raises(OutsideRootError) as caught:
        await CompositeBackend(shown_elsewhere(tmp_path), {}).write_bytes('/elsewhere', b'')
    assert (caught.value.path, caught.value.root) == ('/elsewhere', str(tmp_path))
    with pytest.raises(OutsideRootError) as caught:
        await CompositeBackend(StateBackend(), {'/box': shown_elsewhere(tmp_path)}).write_bytes('/box/x', b'')
    assert (caught.value.path, caught.value.root) == ('/box/x', f'/box{tmp_path}')
    assert 'is outside of' in str(caught.value)
    (tmp_path / 'link').symlink_to('/etc')
    with pytest.raises(OutsideRootError) as caught:
        await CompositeBackend(StateBackend(), {'/box': LocalBackend(tmp_path)}).read_bytes('/box/link/x')
    assert (caught.value.path, caught.value.root) == ('/box/link/x', None)


needs_bwrap = pytest.mark.skipif(
    shutil.which('bwrap') is None, reason='bubblewrap is not installed: apt-get install bubblewrap'
)


@needs_bwrap
async def test_composite_reports_protected_files_of_its_parts(repository: Path):
    mounted = CompositeBackend(SandboxBackend(repository), {'/memory': StateBackend()})
    assert isinstance(mounted, SupportsProtection)
    before: Mapping[str, str] = await mounted.protected_files()
    assert '/workspace/.git/config' in before
    assert await is_protected(mounted, '/workspace/.vscode', PROTECTED_FILES)
    assert await is_protected(mounted, '/memory/.envrc', PROTECTED_FILES)
    local: Callable[[Path], BackendProtocol] = lambda root: LocalBackend(root, allow_commands=True)  # noqa: E731
    mounted = CompositeBackend(local(repository), {'/memory': StateBackend()})
    assert isinstance(mounted, SupportsProtection)
    assert f'{repository}/.git/config' in await mounted.protected_files()
    assert await is_protected(mounted, f'{repository}/.git', ['.git/config'])
    mounted = CompositeBackend(StateBackend(), {'/m': LocalBackend(repository)})
    assert isinstance(mounted, SupportsProtection)
    assert '/m/.git/config' in await mounted.protected_files()
